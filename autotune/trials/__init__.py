"""One trial, from its order (`setup`) to its measurement: process, clock, outcome; and races of several."""
