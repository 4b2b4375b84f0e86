"""What follows from the trials: what counts, who wins, what runs next, what is stopped.

May import `measurement`.
"""
