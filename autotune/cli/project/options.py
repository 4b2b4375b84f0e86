"""A setting that a script takes on its command line."""

from dataclasses import dataclass

from autotune.core.settings import Setting


@dataclass(frozen=True)
class Option:
    """A setting called `name`, which may be dotted, and `form`: how it is given, `{}` where its value goes.

    A switch has no `{}`: it is given, or not. `value` is what it has when nothing is said, None where there
    is none or it is not known. One that is `required` has to be given.
    """

    name: str
    form: str
    value: Setting = None
    choices: tuple[Setting, ...] = ()
    required: bool = False
    help: str = ""

    @property
    def is_switch(self) -> bool:
        return "{}" not in self.form

    @property
    def key(self) -> str:
        """The last part of its name, as it is compared with others."""
        return self.name.rpartition(".")[2].lower().replace("-", "_")
