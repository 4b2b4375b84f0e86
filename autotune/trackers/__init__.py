"""W&B and TensorBoard. `charts` names what all of them show.

A search has callbacks of Ray Tune (`tracking`, `tensorboard`), a whole training is without Ray (`following`).
Imports `display` and the rooms below.
A tracker that fails never ends a search or a training.
"""
