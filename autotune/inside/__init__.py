"""What runs inside somebody's training: it reports from there, and asks whether to stop.

Standard library only, because it is imported into any training; what is in `site` needs nothing of the tuner
either. Imports `core`.
"""
