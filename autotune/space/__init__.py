"""The search space: YAML in, configurations out. `machine` drops what a given machine cannot run."""
