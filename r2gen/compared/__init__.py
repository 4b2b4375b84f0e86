"""Compares what models wrote for the same studies: in figures, side by side, and marked by blind readers.

It reads the files of `evaluate --reports`, and needs no torch.
"""
