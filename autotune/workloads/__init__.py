"""What is tuned: a function `fit(settings, workdir)`, or a command, and what is known about it besides.

Imports `inside` and `core`; `r2gen` alone imports the trainer.
Starts no training.
"""
