"""Places to run trials: Ray Tune, its supervisors, its cluster, a search whose Ray has died.

Imports `search` and the rooms below.
Decides nothing: the search does.
"""
