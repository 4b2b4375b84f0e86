"""Callbacks of Ray Tune for W&B (`tracking`) and TensorBoard; `charts` names what all of them show.

Imports `display` and the rooms below.
A tracker that fails never ends a search.
"""
