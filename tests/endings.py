"""The exit codes of a search that ended: with a winner, or without one.

Which of the two is decided by figures that a busy machine may move: a test about something else takes either,
and checks by the trials whether the search ended.
"""

ENDED = {0, 1}
