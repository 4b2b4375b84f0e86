"""Measures the project itself: recorded runs, searches replayed over them, and a check of a GPU.

Not part of the installed package: `python -m lab`, in a checkout.
"""
