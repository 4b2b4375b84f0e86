"""Finds the settings of a training by running its command line briefly and watching what it does."""
