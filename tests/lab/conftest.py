"""Fixtures that the lab's tests share with the tuner's."""

from tests.autotune.conftest import confirming, grid, make_trial, planned, recorded, space

__all__ = ["confirming", "grid", "make_trial", "planned", "recorded", "space"]
