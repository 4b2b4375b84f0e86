"""W&B and TensorBoard. `charts` has the names under which every tracker shows its figures.

A search calls them as callbacks of Ray Tune (`tracking`, `tensorboard`), which `cli.cli_run` passes to the
engine. A whole training calls them without Ray (`following`).
May import `display` and the rooms below. A tracker that fails never ends a search or a training.
"""
