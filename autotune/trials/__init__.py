"""One trial, from its order (`setup`) to its measurement: process, clock, outcome; and races of several.

May import `storage` and the rooms below. It knows neither the search nor Ray.
"""
