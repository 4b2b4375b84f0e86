"""The exit codes of a search that came to its end: with a winner, or without one.

Which of the two is decided by figures that a busy machine may move: a test about something else takes either,
and asks the trials whether the search came to its end.
"""

ENDED = {0, 1}
