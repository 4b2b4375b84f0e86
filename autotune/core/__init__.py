"""The nouns: settings, trials, sizes, errors; and files that are written as a whole.

`settings` says what each setting changes, and what it needs from the machine.
May import only the standard library: no other room, and nothing that has to be installed.
"""
