"""Accounts of a search: why trials did not win, what trainings cost, whether promises are kept."""
