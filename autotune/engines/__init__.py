"""Runs the trials with Ray Tune, the only engine: supervisors, a cluster, restarts after Ray dies.

May import `searcher` and the rooms below. It decides nothing: the search does.
"""
