"""What the workload itself writes: the trainer's own config, or its command line."""

from autotune.export.winner import Exported, Winner


def render(winner: Winner) -> Exported:
    return Exported(winner.comment + winner.workload.own_file.text(winner.settings))
