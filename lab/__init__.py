"""What the project is measured with: recorded runs and searches over them, and a check of a GPU.

It is not installed with the package: `python -m lab`, in a checkout.
"""
