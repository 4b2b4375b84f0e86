"""Compares the reports of several models on the same studies: figures, side by side, blind reading.

Reads the files of `evaluate --reports` and needs no torch.
"""
