"""Creates, opens and locks sessions, and reads the options and the space that they were started with."""

import json
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from autotune.core import files
from autotune.core.errors import DamagedError, InputError
from autotune.core.measurement import Measurement
from autotune.core.settings import LARGEST_INT
from autotune.core.shell import quoted
from autotune.core.trial import Outcome, Trial
from autotune.judging.decisions import pilot
from autotune.judging.decisions.history import History
from autotune.space import spaces
from autotune.space.space import Space
from autotune.storage import identity, lock, study_file
from autotune.storage.identity import TrialIdentity
from autotune.storage.json_file import JsonFile
from autotune.storage.layout import SessionDir, TrialDir
from autotune.storage.lock import Held
from autotune.storage.records import read_records
from autotune.storage.study_file import StudyFile
from autotune.system.node_kinds import Cluster

FORMAT = 2
WANDB_MODES = ("auto", "online", "offline", "off")
_SHOWN = 5

# A damaged file can hold any number; these are safe to calculate with.
_Whole = Annotated[int, Field(ge=0, le=LARGEST_INT)]
_Amount = Annotated[float, Field(ge=0, le=LARGEST_INT, allow_inf_nan=False)]


@dataclass(frozen=True)
class Options:
    """The options of a session's trials; they never change, so a resumed search measures the same way."""

    gpus_per_trial: _Amount = 0.0
    cpus_per_trial: _Whole | None = None
    memory_limit_bytes: _Whole | None = None
    stall_timeout_s: _Amount | None = None
    wandb: str = "auto"
    trackers: tuple[str, ...] = ()  # besides TensorBoard and W&B
    seed: _Whole = 0
    warm_start: str | None = None
    keep_checkpoints: bool = False
    tags: tuple[str, ...] = ()


class _Provenance(BaseModel):
    """The provenance of the figures; other types are refused."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str | int | float | bool | None]

    cpus: _Whole | None = None
    training_samples: _Whole | None = None
    space: dict[str, Any] = {}


_OPTIONS, _PROVENANCE = TypeAdapter(Options), TypeAdapter(_Provenance)
_CLUSTER = JsonFile(Cluster)


class StoredSession(SessionDir):
    @property
    def key(self) -> str:
        """The session's random key; a copy of the directory has the same one."""
        return str(self.info().get("key"))

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that trials run on, as it was last seen; None if they run on one machine."""
        if (cluster := _CLUSTER.read(self.nodes_file)) is None and self.nodes_file.exists():
            raise InputError(f"{self.nodes_file}: cannot be read, and says on which cluster trials run")
        return cluster

    def write_cluster(self, cluster: Cluster) -> None:
        _CLUSTER.write(self.nodes_file, cluster)

    def identity_of(self, trial: Trial) -> TrialIdentity:
        return TrialIdentity.of_trial(self.key, trial)

    def verdict_of(self, trial: Trial) -> tuple[Outcome, Measurement] | None:
        """Returns a trial's outcome and measurement from its own files, None if it has not ended."""
        place = self.trial_dir(trial.number)
        return identity.read_verdict(place) if self._owns(place, trial) else None

    def records_of(self, trial: Trial) -> list[dict[str, Any]]:
        """Returns the records of a trial so far, [] if its directory belongs to another trial."""
        place = self.trial_dir(trial.number)
        return list(read_records(place)) if self._owns(place, trial) else []

    def _owns(self, place: TrialDir, trial: Trial) -> bool:
        return identity.read_identity(place) == self.identity_of(trial)

    def clear(self, trial: Trial) -> str | None:
        """Renames the directory in which `trial` will run if another trial used it; returns a note on it."""
        place = self.trial_dir(trial.number)
        has_files = place.root.is_dir() and any(place.root.iterdir())
        if not has_files or self._owns(place, trial):
            return None
        aside = identity.set_aside(place.root)
        return f"{place.root} may not belong to trial {trial.number}, so it is set aside as {aside.name}"

    @classmethod
    def create(cls, root: Path, space: Space, options: Options, provenance: Mapping[str, Any]) -> Self:
        """Creates a session; raises InputError if `root` is not empty or cannot be written."""
        session = cls(root.resolve())
        facts = {"options": asdict(options), "provenance": dict(provenance)}
        info = {"format": FORMAT, "key": secrets.token_hex(8), **facts}
        if is_session(root) and is_in_use(session):
            raise lock.busy_error(session.lock_file, f"session {root}")
        try:
            session._require_empty(root)
            session.root.mkdir(parents=True, exist_ok=True)
            with session.lock():
                session._require_empty(root)  # another process may have been quicker
                try:
                    files.write_whole(session.space_file, spaces.dump(space))
                    files.write_whole(session.info_file, json.dumps(info, indent=2) + "\n")
                except OSError:  # either both files or none
                    session.space_file.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise InputError(f"session {root}: cannot be written: {error.strerror}") from None
        return session

    def _require_empty(self, given: Path) -> None:
        """Raises InputError if the directory holds more than the lock that a failed start leaves."""
        if not self.root.exists() or (self.root.is_dir() and not {*self.root.iterdir()} - {self.lock_file}):
            return
        hint = f"continue it with: {resume_command(given)}" if is_session(given) else "name a new one"
        raise InputError(f"session {given}: already exists; {hint}")

    @classmethod
    def open(cls, root: Path) -> Self:
        """Opens a session; raises InputError if there is none or it has another format."""
        session = cls(root.resolve())
        if not is_session(root):
            raise InputError(f"session {root}: there is no session here (it would hold session.json)")
        if (written := session.info().get("format")) != FORMAT:
            raise InputError(
                f"session {root}: has format {written!r}, and this version reads format {FORMAT}; nothing "
                f"was changed; use the version that wrote it, which {session.info_file.name} names, or start "
                f"a new search of its space with: {search_command(root)}"
            )
        return session

    def info(self) -> dict[str, Any]:
        try:
            info = json.loads(files.read(self.info_file))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{self.info_file}: cannot be read: {error}") from None
        if not isinstance(info, dict):
            raise InputError(f"{self.info_file}: must be a mapping, got {type(info).__name__}")
        return info

    def provenance(self) -> dict[str, Any]:
        """Returns the provenance of the session's figures; raises InputError if it is invalid."""
        facts: dict[str, Any] = self._section("provenance", _PROVENANCE).model_dump(exclude_unset=True)
        return facts

    def _section(self, name: str, kind: TypeAdapter[Any]) -> Any:
        try:
            return kind.validate_python(self.info().get(name, {}))
        except ValidationError as error:
            (first, *_) = error.errors()
            at = ".".join(map(str, (name, *first["loc"])))
            raise InputError(f"{self.info_file}: {at}: {first['msg']}") from None

    def options(self) -> Options:
        options: Options = self._section("options", _OPTIONS)
        return options

    def space(self) -> Space:
        try:
            text = files.read(self.space_file)
        except UnicodeDecodeError:
            raise InputError(f"{self.space_file}: must be text in UTF-8") from None
        except OSError as error:
            raise InputError(f"{self.space_file}: cannot be read: {error.strerror}") from None
        return spaces.complete(spaces.parse(text, str(self.space_file)), str(self.space_file))

    def study(self) -> StudyFile:
        """Returns the study; raises DamagedError if it is unreliable, InputError if nothing was run yet."""
        if (study := self._study()) is None:
            raise InputError(
                f"session {self.root}: nothing was run yet; start it with: {resume_command(self.root)}"
            )
        return study

    def history(self) -> History:
        """Returns the history of the session's trials so far, in the space that the pilot has settled."""
        return self.history_of(self.study())

    def history_of(self, study: StudyFile) -> History:
        return pilot.settled(History(study.trials, self.space()))

    def require_whole(self) -> None:
        """Raises DamagedError if there is an unreliable study."""
        self._study()

    def _study(self) -> StudyFile | None:
        """Returns the study, None if nothing has been run yet; raises DamagedError if it is unreliable."""
        numbers = identity.used_numbers(self.trials_dir)  # first, because a search may begin further trials
        try:
            study = study_file.load_study(self.study_file)
            study.require_readable()
        except DamagedError as error:
            raise self.damaged_error(f"is damaged: {error}") from None
        except KeyError:
            if numbers:
                raise self.damaged_error("is missing or empty") from None
            return None
        if study.key not in {"", self.key}:
            raise self.damaged_error("is of another session")
        identities = self.identities(numbers)
        if unknown := [n for n in identities if n >= len(study.entries)]:
            raise self.damaged_error(
                f"is older than its trials, and does not know trials {short_list(unknown)}"
            )
        begun, key = [trial for trial in study.trials if trial.number in identities], self.key
        if others := [t.number for t in begun if identities[t.number] != TrialIdentity.of_trial(key, t)]:
            raise self.damaged_error(f"is not the one that its trials {short_list(others)} come from")
        self._require_knobs(study.trials)
        return study

    def identities(self, numbers: Iterable[int]) -> dict[int, TrialIdentity]:
        """Returns, by number, the identities of the trials among `numbers` that this session has run."""
        key = self.key
        read = ((number, identity.read_identity(self.trial_dir(number))) for number in numbers)
        return {
            n: identity
            for n, identity in read
            if identity and (identity.session, identity.number) == (key, n)
        }

    def _require_knobs(self, trials: Iterable[Trial]) -> None:
        knobs = self.space().knobs.keys()
        for trial in trials:
            if differ := knobs ^ trial.config.keys():
                raise InputError(
                    f"session {self.root}: {', '.join(sorted(differ))}: must be knobs of space.yaml and of "
                    f"every trial, or of none; trial {trial.number} differs. Undo the change of space.yaml"
                )

    def damaged_error(self, how: str) -> DamagedError:
        numbers = identity.used_numbers(self.trials_dir)
        ended = sum(self.trial_dir(number).verdict_file.exists() for number in numbers)
        return DamagedError(
            f"session {self.root}: its study {how}; {self.trials_dir} has files of {len(numbers)} trials, "
            f"{ended} of which had ended; to rebuild the study from them: "
            f"python -m autotune recover {quoted(self.root)}"
        )

    def lock(self) -> AbstractContextManager[Held]:
        """Holds the session's lock; raises SessionBusyError, naming the holder, if another process has it."""
        return lock.hold(self.root, self.lock_file, f"session {self.root}")

    def remove_work(self, trials: Iterable[Trial]) -> None:
        """Removes the work directories that killed trials have left."""
        keep = self.options().keep_checkpoints
        for trial in trials:
            place = self.trial_dir(trial.number)
            is_left = trial.outcome is not None and not trial.outcome.leaves_work(keep=keep)
            if is_left and place.work.is_dir() and self._owns(place, trial):
                shutil.rmtree(place.work, ignore_errors=True)


def short_list(each: Sequence[object]) -> str:
    """Formats the first five values, and how many more there are."""
    more = f" and {len(each) - _SHOWN} more" if len(each) > _SHOWN else ""
    return f"{', '.join(map(str, each[:_SHOWN]))}{more}"


def is_in_use(session: StoredSession) -> bool:
    return lock.is_held(session.root, session.lock_file)


def is_session(root: Path) -> bool:
    with suppress(OSError):  # an invalid directory name
        return SessionDir(root).info_file.is_file()
    return False


def resume_command(session: Path) -> str:
    return f"python -m autotune resume {quoted(session)}"


def search_command(session: Path) -> str:
    space, new = quoted(SessionDir(session).space_file), quoted(f"{session}-2")
    return f"python -m autotune search --space {space} --session {new}"
