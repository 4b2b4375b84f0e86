"""One trial, from order to measurement: its order (`setup`), its process, its clock; a race of several.

May import `storage` and the rooms below.
It knows neither the search nor Ray.
"""
