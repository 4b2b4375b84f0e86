"""Keys of a record that the tuner itself writes or reads."""

# Written by the tuner alone, and only if true; a workload's own values under these keys are dropped.
COMPILING = "is_compiling"  # something was compiled before this record
QUEUED = "is_queued"  # the GPU still has work queued: the step ends later than its record comes
STANDS_FOR = "stands_for"  # number of steps that this record counts for, as earlier ones were left out
SUSPENDED = "suspended_s"  # seconds since the record before during which all processes were suspended
OWN = frozenset({COMPILING, QUEUED, STANDS_FOR, SUSPENDED})

NOTE = "note"  # a sentence for people about what is doubtful in the record
TRAIN_LOSS = "train_loss"  # of a step
FLOPS = "step_flops"  # floating-point operations of the record's steps, by number format
RATE = "learning_rate"  # the optimizer's, written only when it changes
PARAMETERS = "trained_parameters"  # in the first record after the optimizer is known
