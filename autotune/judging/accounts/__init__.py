"""What is said of a search: why trials did not win, what trainings cost, what was promised.

May import `measurement` and `decisions`; decides nothing.
"""
