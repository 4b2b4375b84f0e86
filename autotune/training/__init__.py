"""A whole training, supervised to its end as a trial is: faults answered, its speed and memory watched.

Imports `display` and the rooms below.
Is no part of a search.
"""
