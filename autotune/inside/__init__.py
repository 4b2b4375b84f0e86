"""What runs inside a user's training: it reports from there, and asks whether to stop.

Imports only the standard library, because any training may import it. `site` runs in a script's own Python,
where the tuner need not be installed.
"""
