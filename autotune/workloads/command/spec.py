"""Specification of a command in a search space, and its validation."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from autotune.core import units
from autotune.core.errors import InputError, did_you_mean
from autotune.workloads.command import line
from autotune.workloads.command.files import FilledFile

KIND = "command"
REPORTED = "reported"  # the script calls autotune.report
# Placeholders that are not settings.
WORKDIR, TRIAL_SAMPLES, TRAINING_SAMPLES = "workdir", "trial_samples", "training_samples"
EFFECTIVE_BATCH = "effective_batch_size"
GIVEN = (WORKDIR, TRIAL_SAMPLES, TRAINING_SAMPLES, EFFECTIVE_BATCH)
_FILES = ("jsonl", "csv", "tensorboard", "wandb")
_OF_SHELLS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def _split(given: Any) -> Any:
    """Splits a line into words; converts the numbers in a list to text."""
    if isinstance(given, str):
        return line.split(given)
    if isinstance(given, list | tuple) and all(isinstance(word, str | int | float) for word in given):
        return [line.written(word) for word in given]
    raise ValueError(f"text, or a list of words, got {units.quote(given)}")


def _keys_as_json(by_value: Any) -> Any:
    """Converts keys to JSON text, because YAML keys such as `true` and `1` are not strings."""
    return (
        {line.key_of(key): text for key, text in by_value.items()} if isinstance(by_value, dict) else by_value
    )


def _as_texts(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: line.written(v) if isinstance(v, int | float) else v for name, v in values.items()}


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
ByValue = Annotated[dict[str, Words], BeforeValidator(_keys_as_json)]


class Resume(BaseModel):
    """Arguments that resume a training once the checkpoint `file` exists."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(description="the checkpoint, a file or directory; `*` stands for any characters")
    arguments: Words = Field(description="what is then added at the end of the command line")


_INNER_KEYS: Mapping[str | int, Sequence[str]] = {"resume": ("file", "arguments"), "files": ("base", "set")}


def _as_resume(value: Any) -> Any:
    """Takes a text as the arguments, which contain the checkpoint's path."""
    if not isinstance(value, str):
        return value
    if (path := line.path_in(line.split(value))) is None:
        raise ValueError(
            "arguments with the checkpoint's path, such as --resume {workdir}/last.pt; where they have none, "
            f"{{file: '{{workdir}}/last.pt', arguments: ...}}, got {units.quote(value)}"
        )
    return {"file": path, "arguments": value}


def named_scores(value: Any) -> Any:
    if value != REPORTED and not (isinstance(value, dict) and value):
        raise ValueError(f"{{name: pattern}}, or {REPORTED}, got {units.quote(value)}")
    return value


class Spec(BaseModel):
    """Specification of a command."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["command"] = Field("command", description="`command`")
    run: Words = Field(
        min_length=1, description="the command line, with settings in braces; no shell reads it"
    )
    directory: str = Field(
        ".",
        description="where it runs, relative to the search space's file; default: the directory of that file",
    )
    python: str | None = Field(
        None,
        description="the Python that a leading `python` means, whose directory comes first on PATH; "
        "the default is the one that the tuner runs with",
    )
    environment: Annotated[dict[str, str], BeforeValidator(_as_texts)] = Field(
        default_factory=dict, description="further environment variables; values may have settings in braces"
    )
    setup: Words = Field((), description="a command that runs before a search begins; it may run again")
    flags: dict[str, ByValue] = Field(
        default_factory=dict,
        description="what a setting's value adds at the end of the line: {setting: {value: flags}}",
    )
    quality: Annotated[dict[str, str] | Literal["reported"], BeforeValidator(named_scores)] = Field(
        description="scores by name: a pattern whose first group is the number in a line of the output, or "
        "its column, key or tag in the file named below; `reported` if the script calls `autotune.report`"
    )
    jsonl: str | None = Field(None, description="a file of JSON lines that it writes, with the scores")
    csv: str | None = Field(None, description="a CSV file that it writes, with the scores")
    tensorboard: str | None = Field(
        None, description="the directory in which it logs scores with TensorBoard's SummaryWriter"
    )
    wandb: str | None = Field(None, description="the directory of the W&B runs in which it logs scores")
    samples: str | None = Field(
        None, description="for a script without PyTorch: a pattern for the samples so far"
    )
    steps: str | None = Field(
        None, description="for a script without PyTorch: a pattern that matches once for every optimizer step"
    )
    resume: Annotated[Resume | None, BeforeValidator(_as_resume)] = Field(
        None, description="arguments that the tuner adds once the checkpoint that they name exists"
    )
    files: dict[str, FilledFile] = Field(
        default_factory=dict,
        description="files that it reads: {name: {base: FILE, set: {path: value}}}; your own YAML, JSON "
        "or Python is written for every trial with these values in it, and `{name}` is its path; a Python "
        "file's values are constants at its top, in a class, or in `main`",
    )
    code: tuple[str, ...] = Field(
        (),
        description="files whose change makes results incomparable; default: the programs and "
        "configs that git tracks, and what `run` names",
    )
    data: tuple[str, ...] = Field(
        (), description="data files; a change of their size or time makes results incomparable"
    )
    training_samples: int | None = Field(
        None, ge=1, description="samples of the whole training that the baseline is for"
    )
    seed: Literal["hook"] | None = Field(
        None, description="`hook`: the tuner sets the seed from outside, as for a script that takes none"
    )
    view: bool = Field(
        False,
        description="trials run in a view of the directory, with copies of small files and links to large "
        "ones, so that what they write there stays in the trial's",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if wrong := list(self._mistakes()):
            raise ValueError("; ".join(wrong))
        return self

    def _mistakes(self) -> Iterator[str]:
        if operator := next((word for word in self.run if word in _OF_SHELLS), None):
            yield f"run: no shell reads it; put what needs {operator!r} into a script, and run that"
        if self.run and _ASSIGNMENT.match(self.run[0]):
            yield f"run: a variable belongs in workload.environment, got {self.run[0]}"
        files = [name for name in _FILES if getattr(self, name) is not None]
        if len(files) > 1:
            yield f"at most one of {', '.join(_FILES)}, got {' and '.join(files)}"
        if self.quality == REPORTED and files:
            yield f"quality: the keys of the scores in the file of {files[0]}, {{name: key}}, got {REPORTED}"
        if self.samples is not None and self.steps is not None:
            yield "at most one of samples, steps, got both"
        if not files and isinstance(self.quality, dict):
            for name, pattern in self.quality.items():
                yield from _wrong_pattern(f"quality.{name}", pattern, groups=1)
        yield from _wrong_pattern("samples", self.samples, groups=1)
        yield from _wrong_pattern("steps", self.steps, groups=0)
        for name in (WORKDIR, *self.files):
            if name in line.names_in(self.setup):
                yield f"setup: cannot use {{{name}}}, because it runs before there is a trial"
        names = self.placeholders()
        for name, own in self.files.items():
            yield from (f"files.{name}.{mistake}" for mistake in own.mistakes())
            if not name.isidentifier() or name in GIVEN:
                rule = f"must be a name of letters and none of {', '.join(GIVEN)}"
                yield f"files: {rule}, got {units.quote(name)}"
            elif all(name not in names[key] for key in ("run", "environment", "flags", "resume")):
                yield f"files.{name}: nothing reads it; write {{{name}}} into workload.run"

    @property
    def file(self) -> tuple[str, str] | None:
        """Kind and path of the file that has the scores; None if no file has them."""
        return next(((name, path) for name in _FILES if (path := getattr(self, name)) is not None), None)

    @property
    def scores(self) -> Mapping[str, str]:
        """The pattern or key of each score; empty if the script reports them."""
        return {} if isinstance(self.quality, str) else self.quality

    @property
    def patterns(self) -> Mapping[str, str]:
        """The patterns of scores in the output; empty if the scores are in a file."""
        return {} if self.file else self.scores

    @property
    def counts_by_output(self) -> bool:
        """True if steps are counted by patterns in the output, not by the hook."""
        return self.samples is not None or self.steps is not None

    def placeholders(self) -> dict[str, list[str]]:
        """Returns the placeholders by the key that contains them."""
        by_key = {
            "run": self.run,
            "setup": self.setup,
            "environment": tuple(self.environment.values()),
            "flags": tuple(
                text for by_value in self.flags.values() for texts in by_value.values() for text in texts
            ),
            "resume": (self.resume.file, *self.resume.arguments) if self.resume else (),
            **({self.file[0]: (self.file[1],)} if self.file else {}),
        }
        in_files = {f"files.{name}": own.names() for name, own in self.files.items()}
        return {key: line.names_in(texts) for key, texts in by_key.items()} | in_files

    def require_settings(self, settings: Mapping[str, Any], used_by_tuner: tuple[str, ...] = ()) -> None:
        """Raises InputError for names that no nested or dotted setting has, and for unused settings."""
        paths = [path for path, _ in line.flat(settings)]
        twice = [name for name in self.files if name in paths]
        wrong = [f"workload.files.{name}: a setting has the same name" for name in twice]
        named = [(f"{key}: {{{name}}}", name) for key, names in self.placeholders().items() for name in names]
        for what, name in [*named, *((f"flags: {name}", name) for name in self.flags)]:
            if name not in {*paths, *GIVEN, *self.files}:
                nearest = did_you_mean(name, [*paths, *GIVEN])
                wrong.append(f"workload.{what} is no setting of the baseline{nearest}")
        if wrong := [*wrong, *self.unused(settings, used_by_tuner)]:
            raise InputError("; ".join(wrong))

    def unused(self, settings: Mapping[str, Any], used_by_tuner: tuple[str, ...]) -> list[str]:
        names = [name for names in self.placeholders().values() for name in names]
        used = [*self.flags, *used_by_tuner, *GIVEN, *names]
        return [
            f"baseline.{name}: nothing uses it; write {{{name}}} into workload.run, or give it flags"
            for name in line.unused(settings, used)
        ]


_S = TypeVar("_S", bound=Spec)


def read(values: Mapping[str, Any], model: type[_S]) -> _S:
    """Returns the specification in `values`; raises InputError with every mistake, in one line."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        mistakes = [_explained(one, list(model.model_fields)) for one in error.errors()]
        raise InputError("workload: " + "; ".join(mistakes)) from None


def _explained(error: ErrorDetails, keys: Sequence[str]) -> str:
    where = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("dict[", "literal[")))
    match error["type"]:
        case "extra_forbidden":
            allowed = _INNER_KEYS.get(error["loc"][0], keys)
            return f"{where}: no such key{did_you_mean(error['loc'][-1], allowed)}"
        case "missing" if where == "quality":
            return "quality: required: {name: pattern}, or {name: key} with one of " + ", ".join(_FILES)
        case "missing":
            return f"{where}: required"
        case "value_error":
            message = error["msg"].removeprefix("Value error, ")
            return f"{where}: {message}" if where else message
    return f"{where}: {error['msg'][0].lower()}{error['msg'][1:]}, got {units.quote(error['input'])}"


def _wrong_pattern(where: str, pattern: str | None, groups: int) -> Iterator[str]:
    if pattern is None:
        return
    try:
        count = re.compile(pattern).groups
    except re.error as error:
        yield f"{where}: must be a regular expression ({error}), got {units.quote(pattern)}"
        return
    if count < groups:
        yield f"{where}: needs a group for the number, such as ([0-9.]+), got {units.quote(pattern)}"


def with_absolute_paths(values: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Returns `values` with absolute paths; relative ones are taken from `directory`."""
    paths = {"directory": values.get("directory", "."), "python": values.get("python")}
    return {
        **values,
        # Not resolved: the Python of a virtual environment is a link to one outside of it.
        **{key: str((directory / path).absolute()) for key, path in paths.items() if isinstance(path, str)},
    }
