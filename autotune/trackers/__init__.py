"""TensorBoard, W&B and MLflow behind one interface; a tracker that fails ends nothing."""
