"""The cells of a notebook: searches `linear.yaml`, shows what comes out, and writes the winner."""

# %% A search, with a line for everything that happens
from pathlib import Path

import autotune

SESSION = Path("runs/notebook")


def show(event):
    """Prints what a search says, and how each of its trials has ended."""
    if event["event"] in {"note", "ended"}:
        print({key: event[key] for key in ("text", "trial", "status", "throughput") if key in event})


if SESSION.exists():
    session = autotune.resume(SESSION, on_event=show)
else:
    session = autotune.search("linear.yaml", session=SESSION, trials=3, wandb="off", on_event=show)

# %% The answer and the trials; a notebook shows the session itself as a table
print(session.evidence)
print(session.trials)

# %% The settings to train with
print(session.export("best.yaml", trial=session.evidence.trial).read_text())
print(session.report())
