"""What a script finds on its path that is run as a command: modules of the standard library and Python 3.8.

The directory itself is on that path, so a module in it imports another one by its bare name. The script's
environment need not have the tuner.
"""
