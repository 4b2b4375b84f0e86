"""Finds the training settings that are fastest on this hardware at the same quality, and proves it."""
