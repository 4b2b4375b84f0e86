"""Modules that a script finds on its path when it runs as a command. They need only Python 3.8.

The directory itself is on that path, so a module imports another one by its bare name.
May import only the standard library: the script's environment need not have the tuner.
"""
