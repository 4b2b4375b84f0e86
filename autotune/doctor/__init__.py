"""`doctor`: examines what this machine can run and what is missing, with remedies."""
