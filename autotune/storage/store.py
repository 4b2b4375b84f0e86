"""The session directory: every path in it, what it was started with, and the lock of whoever uses it."""

import fcntl
import json
import os
import shlex
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self, TextIO

from autotune.core import files
from autotune.core.errors import InputError, SessionBusyError
from autotune.core.trial import Trial
from autotune.space import space as spaces
from autotune.space.space import Space
from autotune.storage import study_file
from autotune.storage.study_file import StudyFile
from autotune.storage.trial_dir import ModelDir, TrialDir

FORMAT = 2  # code that takes ablation steps for trials of a search was never released
WANDB_MODES = ("auto", "online", "offline", "off")
_READABLE = (1, FORMAT)
_TRIES, _BETWEEN_S = 5, 0.1  # who only asks whether a session is in use holds its lock for a moment


@dataclass(frozen=True)
class Options:
    """How the trials of a session run. Fixed when it is created: a resumed search measures the same way."""

    gpus_per_trial: float = 0.0
    cpus_per_trial: int | None = None
    memory_limit_bytes: int | None = None
    stall_timeout_s: float | None = None
    wandb: str = "auto"
    address: str | None = None
    seed: int = 0
    warm_start: str | None = None
    keep_checkpoints: bool = False


@dataclass(frozen=True)
class Session:
    """One search's directory. Every path in it is made here."""

    root: Path

    @property
    def info_file(self) -> Path:
        return self.root / "session.json"

    @property
    def space_file(self) -> Path:
        return self.root / "space.yaml"

    @property
    def study_file(self) -> Path:
        return self.root / "study.db"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def threshold_file(self) -> Path:
        """What running trials have to be able to reach."""
        return self.root / "threshold.json"

    @property
    def ray_dir(self) -> Path:
        """Ray Tune's scratch space; nothing in it outlives a run."""
        return self.root / "ray"

    @property
    def tensorboard_dir(self) -> Path:
        return self.root / "tensorboard"

    @property
    def wandb_dir(self) -> Path:
        """W&B's own, and beside it what tells this session's runs from another's of the same name."""
        return self.root / "wandb"

    @property
    def wandb_key_file(self) -> Path:
        return self.wandb_dir / "session-key"

    @property
    def report_file(self) -> Path:
        return self.root / "report.html"

    def trial_dir(self, number: int) -> TrialDir:
        return TrialDir(self.root / "trials" / f"{number:04d}")

    @property
    def comparison_dir(self) -> Path:
        """One directory a model that was compared."""
        return self.root / "comparison"

    def model_dir(self, label: str) -> ModelDir:
        return ModelDir(self.comparison_dir / label)

    @property
    def name(self) -> str:
        return self.root.name

    @classmethod
    def create(cls, root: Path, space: Space, options: Options, provenance: Mapping[str, Any]) -> Self:
        """A new session; raises InputError where something is in the way."""
        session = cls(root.resolve())
        if is_session(root) and is_in_use(session):
            raise _busy(session.lock_file, f"session {root}")
        try:
            session._require_empty(root)
            session.root.mkdir(parents=True, exist_ok=True)
            with session.lock():
                session._require_empty(root)  # another process may have been quicker
                session._begin(space, options, provenance)
        except OSError as error:
            raise InputError(f"session {root}: cannot be written: {error.strerror}") from None
        return session

    def _require_empty(self, shown: Path) -> None:
        """Raises InputError where the directory holds more than a lock, all that a failed start leaves."""
        if not self.root.exists() or (self.root.is_dir() and not {*self.root.iterdir()} - {self.lock_file}):
            return
        hint = f"continue it with: {going_on(shown)}" if is_session(shown) else "name a new one"
        raise InputError(f"session {shown}: already exists; {hint}")

    def _begin(self, space: Space, options: Options, provenance: Mapping[str, Any]) -> None:
        """Writes what makes the directory a session, all of it or nothing."""
        info = {"format": FORMAT, "options": asdict(options), "provenance": dict(provenance)}
        try:
            files.write_whole(self.space_file, spaces.dump(space))
            files.write_whole(self.info_file, json.dumps(info, indent=2) + "\n")
        except OSError:
            self.space_file.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, root: Path) -> Self:
        """An existing session; raises InputError where there is none, or one that cannot be read."""
        session = cls(root.resolve())
        if not is_session(root):
            raise InputError(f"session {root}: there is no session here (it would hold session.json)")
        found = session.format
        if isinstance(found, int) and found > FORMAT:
            by = str(session.info().get("provenance", {}).get("versions", "")).partition(",")[0]
            raise InputError(
                f"session {root}: was written by a newer version, in format {found}, and this one reads up "
                f"to {FORMAT}: install {by or 'that version'} or newer"
            )
        if found not in _READABLE:
            known = " and ".join(map(str, _READABLE))
            raise InputError(f"session {root}: has format {found!r}, this version reads {known}")
        return session

    @property
    def format(self) -> Any:
        """What kind of session `session.json` says it is."""
        return self.info().get("format")

    def require_current(self, shown: Path) -> None:
        """Raises InputError where the session can be looked at, but not gone on with."""
        if self.format != FORMAT:
            raise InputError(
                f"session {shown}: is of format {self.format}, which did not record the device and the code "
                "of its trials, so new ones cannot be compared with them; status, report and export read it; "
                f"start a new search of its space with: {anew(shown)}"
            )

    def info(self) -> dict[str, Any]:
        try:
            info = json.loads(self.info_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.info_file}: cannot be read: {error}") from None
        if not isinstance(info, dict):
            raise InputError(f"{self.info_file}: must be a mapping, got {type(info).__name__}")
        return info

    def options(self) -> Options:
        known = {f.name for f in fields(Options)}
        return Options(**{k: v for k, v in self.info().get("options", {}).items() if k in known})

    def space(self) -> Space:
        try:
            return spaces.parse(self.space_file.read_text(encoding="utf-8"), str(self.space_file))
        except OSError as error:
            raise InputError(f"{self.space_file}: cannot be read: {error.strerror}") from None

    def study(self) -> StudyFile:
        """What the study says now; raises InputError where nothing was run yet."""
        try:
            return study_file.load_study(self.study_file)
        except KeyError:
            raise InputError(
                f"session {self.root}: nothing was run yet; start it with: {going_on(self.root)}"
            ) from None

    def lock(self) -> AbstractContextManager[None]:
        """Holds the session for this process alone; raises SessionBusyError naming who has it."""
        return locked(self.lock_file, f"session {self.root}")

    def size_bytes(self) -> int:
        """The room that the session takes on its disk, as far as its files stay while they are counted."""
        return sum(_room_bytes(Path(place, name)) for place, _, names in os.walk(self.root) for name in names)

    def remove_work(self, trials: Iterable[Trial]) -> None:
        """Removes the checkpoints of trials that have ended: a kill may have been quicker than they were."""
        keep = self.options().keep_checkpoints
        for trial in trials:
            if trial.outcome is not None and not trial.outcome.leaves_work(keep=keep):
                shutil.rmtree(self.trial_dir(trial.number).work, ignore_errors=True)


@contextmanager
def locked(lock: Path, what: str) -> Iterator[None]:
    """Holds the file `lock` for this process alone; raises SessionBusyError naming who has it.

    The kernel drops the lock with its holder, however that ends: a lock is never stale.
    """
    with lock.open("a+", encoding="utf-8") as file:
        if not any(_is_taken(file) for _ in range(_TRIES)):
            raise _busy(lock, what)
        file.seek(0)
        file.truncate()
        file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _is_taken(file: TextIO) -> bool:
    """Whether the lock is ours now; else it has waited for a moment."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_BETWEEN_S)
        return False
    return True


def _busy(lock: Path, what: str) -> SessionBusyError:
    holder = lock.read_text(encoding="utf-8").strip() or "another process"
    return SessionBusyError(f"{what}: is in use by {holder}; wait or stop it")


def is_in_use(session: Session) -> bool:
    """Whether a process holds the session's lock: a search is running."""
    try:
        with session.lock_file.open("r", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def is_session(root: Path) -> bool:
    with suppress(OSError):  # a name that no directory can have
        return Session(root).info_file.is_file()
    return False


def going_on(session: Path) -> str:
    """The command that goes on with a session."""
    return f"python -m autotune resume {shlex.quote(str(session))}"


def anew(session: Path) -> str:
    """The command that searches a session's space in a new one."""
    space, new = shlex.quote(str(Session(session).space_file)), shlex.quote(f"{session}-2")
    return f"python -m autotune search --space {space} --session {new}"


def _room_bytes(file: Path) -> int:
    try:
        return file.lstat().st_blocks * 512
    except OSError:  # it was there a moment ago
        return 0
