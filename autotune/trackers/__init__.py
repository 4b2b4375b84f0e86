"""W&B and TensorBoard. `charts` names the metrics for every tracker.

A search calls them as Ray Tune callbacks (`tracking`, `tensorboard`), which `sessions.run` passes to the
engine. A whole training calls them without Ray (`following`).
May import `display` and the rooms below. A tracker that fails never ends a search or a training.
"""
