"""Weights & Biases and TensorBoard: what is charted, and under which names.

Imports `display` and the rooms below.
A tracker that fails never ends a search.
"""
