"""Runs the trials with Ray Tune, the only engine: supervisors, a cluster, restarts after Ray dies."""
