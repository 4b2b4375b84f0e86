"""Trains and scores models in each precision, and decides which precision to take."""
