"""Modules on a command's Python path: for Python 3.8 or newer, without the tuner, imported by bare names."""
