"""Option on a script's command line."""

from dataclasses import dataclass

from autotune.core.settings import Setting


@dataclass(frozen=True)
class Option:
    """Setting that a script takes as an option."""

    name: str  # may be dotted
    form: str  # as written on the command line, with `{}` for the value; a switch has no `{}`
    value: Setting = None  # default; None: none, or unknown
    choices: tuple[Setting, ...] = ()
    required: bool = False
    help: str = ""

    @property
    def is_switch(self) -> bool:
        return "{}" not in self.form

    @property
    def key(self) -> str:
        """Last part of the name, normalized for comparison."""
        return self.name.rpartition(".")[2].lower().replace("-", "_")
