"""The session directory: every path in it, what it was started with, and the lock of whoever uses it."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from autotune import space as spaces
from autotune.errors import InputError, SessionBusyError
from autotune.space import Space

FORMAT = 2


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
    def bar_file(self) -> Path:
        """What running trials have to be able to reach."""
        return self.root / "bar.json"

    @property
    def ray_dir(self) -> Path:
        """Ray Tune's scratch space; nothing in it outlives a run."""
        return self.root / "ray"

    def trial_dir(self, number: int) -> Path:
        return self.root / "trials" / f"{number:04d}"

    @property
    def name(self) -> str:
        return self.root.name

    @classmethod
    def create(cls, root: Path, space: Space, options: Options, provenance: Mapping[str, Any]) -> Self:
        """A new session; raises InputError where something is in the way."""
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            hint = (
                f"continue it with: python -m autotune resume {root}"
                if is_session(root)
                else "name a new one"
            )
            raise InputError(f"session {root}: already exists; {hint}")
        session = cls(root.resolve())
        info = {"format": FORMAT, "options": asdict(options), "provenance": dict(provenance)}
        try:
            session.root.mkdir(parents=True, exist_ok=True)
            _write(session.space_file, spaces.dump(space))
            _write(session.info_file, json.dumps(info, indent=2) + "\n")
        except OSError as error:
            raise InputError(f"session {root}: cannot be written: {error.strerror}") from None
        return session

    @classmethod
    def open(cls, root: Path) -> Self:
        """An existing session; raises InputError where there is none, or one of another format."""
        session = cls(root.resolve())
        if not is_session(root):
            raise InputError(f"session {root}: there is no session here (it would hold session.json)")
        found = session.info().get("format")
        if found != FORMAT:
            raise InputError(f"session {root}: has format {found}, this version reads format {FORMAT}")
        return session

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

    def lock(self) -> AbstractContextManager[None]:
        """Holds the session for this process alone; raises SessionBusyError naming who has it."""
        return locked(self.lock_file, f"session {self.root}")


@contextmanager
def locked(lock: Path, what: str) -> Iterator[None]:
    """Holds the file `lock` for this process alone; raises SessionBusyError naming who has it.

    The kernel drops the lock with its holder, however that ends: a lock is never stale.
    """
    with lock.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise SessionBusyError(f"{what}: is in use by {holder}; wait or stop it") from None
        file.seek(0)
        file.truncate()
        file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


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
    return (root / "session.json").is_file()


def _write(file: Path, text: str) -> None:
    """Writes `file` whole or not at all."""
    temporary = file.with_name(file.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)
