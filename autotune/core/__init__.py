"""The nouns: settings, trials, sizes, errors; files that are written as a whole.

`settings` has what each setting changes, and what it needs from the machine. Imports only the standard
library: no other room, and nothing that has to be installed.
"""
