"""The options of a script, from its parser or configuration, and their places in a command line. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.core.common_names import ENDS, EPOCHS, NAMES, OF_SCHEDULES
from autotune.core.settings import Setting
from autotune.inside.site.autotune_wire import TRAINER_PRECISIONS
from autotune.workloads.command.line import flat

_ASSIGNED = re.compile(r"(?P<prefix>--)?(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.*)", re.DOTALL)
EVERY = (
    *("eval_interval", "eval_steps", "eval_every", "evaluate_every", "val_interval", "val_every"),
    *("valid_steps", "val_check_interval", "validate_every", "eval_freq", "val_freq"),
    *("eval_iters_interval", "test_interval"),
)
_PRECISION_FLAGS = {
    name: " ".join(f"--{switch} {is_on}" for switch, is_on in switches.items() if is_on or switch != "tf32")
    for name, switches in TRAINER_PRECISIONS.items()
    if None not in switches.values()
}
_BF16_ON_CPU = f"{_PRECISION_FLAGS['bf16']} --use_cpu True"


@dataclass(frozen=True)
class Option:
    """A setting that a script takes on its command line."""

    name: str  # may be dotted
    # Words with `{}` for the value, such as `--lr {}`; a switch has no `{}`; "": something else sets it.
    form: str
    value: Setting = None  # of the user's training; None: none, or unknown
    flags: tuple[str, ...] = ()  # all spellings on the command line
    choices: tuple[Setting, ...] = ()
    file: str = ""  # the configuration file that has it, as named on the command line; "": none
    by_value: tuple[tuple[str, str], ...] = ()  # the words for each value, if several flags set it

    @property
    def is_switch(self) -> bool:
        return self.form != "" and "{}" not in self.form

    @property
    def is_inside(self) -> bool:
        """True if it is an argument of an object in the script, which the hook replaces: `optimizer.lr`."""
        return not self.form and not self.file and not self.by_value

    @property
    def key(self) -> str:
        """Last part of the name, normalized for comparison."""
        return self.name.rpartition(".")[2].lower().replace("-", "_")

    @property
    def placeholder(self) -> str:
        """Name in a search space, where names have no dash."""
        return self.name.replace("-", "_")


def of_parser(parser: Sequence[Mapping[str, Any]]) -> list[Option]:
    """Returns the options of a `parser` that the probe has noted, without options that turn a setting off."""
    return [
        Option(
            name=one["name"],
            form=one["flag"] if one["is_switch"] else f"{one['flag']} {{}}",
            value=one["value"],
            flags=tuple(one["flags"]),
            choices=tuple(one["choices"]),
        )
        for one in parser
        if not one["is_switch"] or one["turns"] is True
    ]


def of_names(names: Mapping[str, Setting], words: Sequence[str]) -> list[Option]:
    """Returns the main module's scalars as options `--name=value`, if the command line sets one like that."""
    given = [match for word in words if (match := _ASSIGNED.fullmatch(word)) and match["name"] in names]
    if not any(str(names[match["name"]]) == match["value"] for match in given):
        return []
    prefix = given[0]["prefix"] or ""
    return [Option(name, f"{prefix}{name}={{}}", value) for name, value in names.items()]


def of_file(file: str, data: Any) -> list[Option]:
    """Returns the scalars in a configuration file on the command line, whose content is `data`."""
    settings = flat(data) if isinstance(data, Mapping) else ()
    return [Option(n, "", v, file=file) for n, v in settings if isinstance(v, bool | int | float | str)]


def said_by_flags(
    inside: Iterable[Option], parsed: Iterable[Option], *, on_cpu: bool = False
) -> Iterator[Option]:
    """Yields the arguments of a Transformers trainer, or instead the flags by which the script takes them."""
    flags = {one.name: one for one in parsed if one.form and not one.is_switch}
    # On the CPU, Transformers takes bf16 only with `use_cpu`.
    needed = {"bf16", "fp16", "use_cpu"} if on_cpu else {"bf16", "fp16", "tf32"}
    for one in inside:
        flag = flags.get(one.name.removeprefix("trainer."))
        if flag is not None and flag.value == one.value:
            yield flag
        elif one.name == "trainer.precision" and flags.keys() >= needed:
            words = {**_PRECISION_FLAGS, **({"bf16": _BF16_ON_CPU} if on_cpu else {})}
            yield Option("precision", "", one.value, by_value=tuple(words.items()))
        else:
            yield one


def known(options: Iterable[Option]) -> list[Option]:
    """Returns the options without repeated names; the first of each counts."""
    return list({one.name: one for one in reversed(list(options))}.values())[::-1]


def role_of(options: Iterable[Option], role: str) -> Option | None:
    """Returns the option with the most common name for a role; None if there is none."""
    names = NAMES[role]
    found = [one for one in options if one.key in names and one.value is not None]
    return min(found, key=lambda one: names.index(one.key), default=None)


def ends(options: Iterable[Option]) -> list[tuple[str, list[Option]]]:
    """Returns units of the length, `steps` or `epochs`, with their options; the first ends the training."""
    by_key: dict[str, Option] = {}
    for one in options:
        if not one.is_switch and is_number(one.value) and float(one.value or 0) > 0:
            by_key.setdefault(one.key, one)
    found = []
    # A positive number of steps takes precedence over epochs, because scripts stop at it.
    for unit, names, others in (
        ("steps", ENDS, OF_SCHEDULES),
        ("epochs", EPOCHS, ("warmup_epochs", "decay_epochs", "lr_step_epochs", "cooldown_epochs")),
    ):
        end = next((by_key[name] for name in names if name in by_key), None)
        if end is not None:
            found.append((unit, [end, *(by_key[name] for name in others if name in by_key)]))
    return found


def evaluated(options: Iterable[Option]) -> Option | None:
    """Returns the option for the steps between evaluations."""
    by_key = {one.key: one for one in options if is_count(one.value)}
    return next((by_key[name] for name in EVERY if name in by_key), None)


def is_number(value: Setting) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def scaled(value: Setting, factor: float) -> Setting:
    """Returns a count of steps or epochs multiplied by `factor`; a count above 1 stays at least 1."""
    product = round(float(value or 0) * factor)
    return max(1 if float(value or 0) > 1 else 0, product)


def is_count(value: Setting) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def put(words: Sequence[str], option: Option, text: str | None) -> list[str]:
    """Returns the line with `text` as the option's value, spelt as it is there; without it if None."""
    at, count = _place(words, option) or (len(words), 0)
    before, after = words[:at], words[at + count :]
    if text is None:
        return [*before, *after]
    if option.is_switch:
        return [*before, option.form, *after]
    if count == 2:
        return [*before, words[at], text, *after]
    if count == 1 and option.flags:
        return [*before, f"{words[at].partition('=')[0]}={text}", *after]
    return [*before, *(word.replace("{}", text) for word in option.form.split(" ")), *after]


def _place(words: Sequence[str], option: Option) -> tuple[int, int] | None:
    """Returns the position of an option's last occurrence, and its number of words; None if there is none."""
    if not option.flags:
        prefix = option.form.partition("{}")[0]
        at = [n for n, word in enumerate(words) if word.startswith(prefix.rstrip()) and " " not in prefix]
        at = at or [n for n, word in enumerate(words) if " " in prefix and word == prefix.strip()]
        return (at[-1], 2 if " " in prefix else 1) if at else None
    for n in reversed(range(len(words))):
        if words[n] in option.flags:
            return n, 1 if option.is_switch else 2
        if any(flag.startswith("--") and words[n].startswith(f"{flag}=") for flag in option.flags):
            return n, 1
    return None


def line(words: Iterable[str]) -> str:
    """Returns a command line as a shell reads it, with placeholders unquoted."""
    return " ".join(word if re.fullmatch(r"[\w./=:,@%+{}-]+", word) else shlex.quote(word) for word in words)
