"""What runs inside a user's training: it sends records, and asks whether to stop.

May import only the standard library, because any training may import it.
`site` runs in a script's own Python, where the tuner need not be installed.
"""
