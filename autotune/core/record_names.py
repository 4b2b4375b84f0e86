"""The names of a record's figures that the tuner itself writes or reads."""

# What the tuner says of a record, if it is so; what a workload says under these names is not taken.
COMPILING = "is_compiling"  # something was compiled before it
QUEUED = "is_queued"  # the GPU had not done yet what it was given: the step ends later than it was yielded
STANDS_FOR = "stands_for"  # so many steps, itself included: the others before it were left out
OWN = frozenset({COMPILING, QUEUED, STANDS_FOR})

NOTE = "note"  # a sentence about what is doubtful in it, for people
TRAIN_LOSS = "train_loss"  # of a step
FLOPS = "step_flops"  # the operations of the record's steps, by the kind of their numbers
RATE = "learning_rate"  # of the optimizer, when it has changed; a step without it has that of the one before
