"""The options of commands as the user gives them, and what the command line says of each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

_LARGEST_SEED = 2**31 - 1  # leaves room below NumPy's limit for the seeds of all runs
SESSION = "the session's directory"


def option(text: str, default: Any = None, *names: str, panel: str | None = None, **limits: float) -> Any:
    """Returns a dataclass field that is an option with its own name, or with `names`; `text` explains it."""
    typed = {"help": text, "rich_help_panel": panel, **limits}
    return field(default=default, metadata={"names": names, "option": typed})


_what = partial(option, panel="What is tuned")
_probed = partial(option, panel="A command line")
_output = partial(option, panel="Where it goes")
_budget = partial(option, panel="How long")
_goal = partial(option, panel="What wins")
_trials = partial(option, panel="How trials run")
_time = partial(_budget, "time limit, such as 90m or 2h")
_events = partial(_output, "one JSON object per event, and nothing else", False, "--json")


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The user's choice of a score, for a training given as a command line."""

    score: str | None = _probed("the score that says how good your training is")
    maximize: bool = _probed("a higher score is better", False)
    minimize: bool = _probed("a lower score is better", False)
    yes: bool = _probed("ask nothing, and take the likeliest score", False, "--yes", "-y")


@dataclass(frozen=True, kw_only=True)
class Probing(Scoring):
    only: str | None = _probed("tune only these, of batch,lr,length,workers,precision,compile; default: all")


@dataclass(frozen=True, kw_only=True)
class JudgeRequest(Scoring):
    keep: float | None = _goal("share of A's improvement to keep", min=0, max=1)
    within: float | None = _goal("instead of --keep: how much worse than A's the score may be", min=0)
    pairs: int = _budget("most pairs of trainings, each with a seed of its own", 8, min=3)
    time: str | None = _time()
    session: Path | None = _output("directory of the trainings; name it again to continue them")
    as_json: bool = _output("print one JSON object", False, "--json")


@dataclass(frozen=True, kw_only=True)
class SearchRequest(Probing):
    """The options of a search. None means not given."""

    training: list[str] | None = field(
        default=None,
        metadata={
            "argument": {
                "metavar": "[SPACE | -- COMMAND...]",
                "help": "a search space; or, behind --, the command line that starts your training",
            }
        },
    )
    data: Path | None = _what("data set in R2Gen's layout; default: drawn X-rays")
    space: str | None = _what("search space: a YAML file, cpu, gpu, gpu-small or laptop-8gb")
    content: Mapping[str, Any] | None = None  # of a search space, from a program: not an option
    baseline: Path | None = _what("YAML file with the settings you run today")
    model: str | None = _what("size of the R2Gen model: full or small")
    warm_start: Path | None = _what("earlier session to learn from, with the same settings and hardware")
    skip_bad_samples: bool = _what("leave out studies that cannot be used", False)

    session: Path | None = _output("directory of the search; default: a new one in runs/")
    wandb: str = _output("Weights & Biases: auto, online, offline or off", "auto")
    tracker: list[str] | None = _output("further tracker that logs the runs: mlflow")
    tag: list[str] | None = _output("tag of the runs in W&B, beside workload, device and precision")
    as_json: bool = _events()

    trials: int | None = _budget("configurations to try", min=1)
    time: str | None = _time()
    worth: str | None = _budget(
        "end once a trial costs more than it may save of so much training, such as 30h"
    )
    samples: str | None = _budget("training samples per trial; auto: as many as the baseline needs to learn")

    keep: float | None = _goal("share of the baseline's improvement to keep", min=0, max=1)
    within: float | None = _goal(
        "instead of --keep: how much worse than the baseline's the quality may be", min=0
    )
    promise: str | None = _goal(
        "what a winner promises: same-quality (a shorter training) or same-training (only faster)"
    )
    select: str | None = _goal("what wins: same-quality, same-training or pareto")
    target: float | None = _goal("a quality to reach in the least time")
    finalists: int | None = _goal("most trials to confirm at the end", min=1)
    repeats: int | None = _goal("most seeds to confirm a winner with, 3 or more; 0: no confirmation", min=0)
    memory_fraction: float | None = _goal("largest share of the memory that a trial may use", min=0, max=1)

    gpus_per_trial: float | None = _trials("GPUs per trial, such as 0.25, 0.5 or 1", min=0)
    cpus_per_trial: int | None = _trials("CPUs per trial, if it uses no GPU", min=1)
    memory_limit: str | None = _trials("host memory limit per trial, such as 3GiB")
    stall_timeout: str | None = _trials("end a trial that makes no progress for this long, such as 10m")
    keep_checkpoints: bool = _trials("keep the checkpoints of completed trials", False)
    address: str | None = _trials("address of a running Ray cluster")
    device_type: str | None = _trials(
        "nodes of the cluster to use: a part of their device's name, such as A100"
    )
    seed: int = _trials("seed of the search", 0, min=0, max=_LARGEST_SEED)


@dataclass(frozen=True, kw_only=True)
class ResumeRequest:
    session: Path = field(metadata={"argument": {"help": SESSION}})
    trials: int = option("additional trials to run", 0, min=0)
    time: str | None = option("new time limit, counted from now")
    address: str | None = option("address of the Ray cluster, if that is another one now")
    as_json: bool = _events()


@dataclass(frozen=True, kw_only=True)
class ProgramCall:
    """A search, new or resumed, that another program requests; it ends with that program."""

    parent: int  # its process
    search: SearchRequest | None = None
    resume: ResumeRequest | None = None


CALL = TypeAdapter(ProgramCall)
