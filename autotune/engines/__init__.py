"""Ray Tune, which runs the trials, and no other engine: supervisors, cluster, a Ray that has died.

Imports `search` and the rooms below.
Decides nothing: the search does.
"""
