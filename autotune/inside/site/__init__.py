"""Modules on the Python path of a command, for Python 3.8 and newer.

The directory itself is on that path, so modules import each other by bare names. They may import only the
standard library: the script's environment need not have the tuner.
"""
