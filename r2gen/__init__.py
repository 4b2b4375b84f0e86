"""R2Gen, the plain trainer: chest X-ray images in, a radiology report out (Chen et al., EMNLP 2020)."""
