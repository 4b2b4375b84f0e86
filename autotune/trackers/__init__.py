"""TensorBoard, W&B and MLflow behind one interface (`tracker`); `registry` lists them.

A search reaches them from Ray Tune's callbacks (`ray_callback`), a whole training calls them itself. `charts`
names the metrics for all. May import `display` and the rooms below. A tracker that fails ends nothing.
"""
