"""One trial, from order to measurement: what it may take (`setup`), its process, its clock; a race.

May import `storage` and the rooms below. It knows neither the search nor Ray.
"""
