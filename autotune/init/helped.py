"""Runs `python SCRIPT --help` and parses the options in its output."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from autotune.core.errors import printable
from autotune.init.options import Option

_FLAG = re.compile(
    r"^ {1,8}(?:-\w+(?:[ ,]\S*)*?,? )?(--[\w.-]+)(?:[ =](\{[^}]*\}|\[?[\w.]+\]?))?(?=\s|,|$)", re.MULTILINE
)
_DEFAULT = re.compile(r"\(default: ([^)]*)\)")
_ENVIRONMENT = {
    "COLUMNS": "200",
    "FORCE_COLOR": "",
    "PYTHONDONTWRITEBYTECODE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "WANDB_MODE": "disabled",
}


@dataclass(frozen=True)
class Help:
    """Help text of a script, or the `fault` if it printed none."""

    text: str = ""
    fault: str = ""


def ask(python: str, directory: Path, script: Path, limit_s: float) -> Help:
    """Runs the script with --help for at most `limit_s`; on a timeout, kills its process group."""
    command, environment = [python, str(script), "--help"], {**os.environ, **_ENVIRONMENT}
    try:
        process = subprocess.Popen(  # noqa: S603 - the user chose script and interpreter
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Help(fault=f"{python}: {error.strerror}")
    with process:
        try:
            out, errors = process.communicate(timeout=limit_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return Help(fault=f"it had not answered after {limit_s:g} s")
            raise
    if process.returncode or "--help" not in out:
        return Help(fault=_last_line(errors or out) or f"it ended with {process.returncode}")
    return Help(out)


def _last_line(text: str) -> str:
    return printable(next(iter(reversed(text.strip().splitlines())), "")).strip()


def confirmed(options: Sequence[Option], text: str) -> list[Option]:
    """Drops options missing from the help `text`, and adds those found only there."""
    documented = {one.form.split()[0]: one for one in _shown(text)}
    kept = [
        _filled(one, documented)
        for one in options
        if not one.form.startswith("--") or _flag(one) in documented
    ]
    known = {_flag(one) for one in options}
    return [*kept, *(one for flag, one in documented.items() if flag not in known and flag != "--help")]


def _flag(option: Option) -> str:
    return re.split(r"[ =]", option.form)[0]


def _filled(option: Option, documented: dict[str, Option]) -> Option:
    """Returns the option with default and choices from the help text, if unknown."""
    other = documented.get(_flag(option))
    if other is None:
        return option
    value = other.value if option.value is None else option.value
    return replace(option, value=value, choices=option.choices or other.choices)


def _shown(text: str) -> list[Option]:
    """Returns the options, with defaults, in a help text of argparse."""
    found = list(_FLAG.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    return [_of(match, text[match.end() : end]) for match, end in zip(found, ends, strict=True)]


def _of(match: re.Match[str], description: str) -> Option:
    flag, metavar = match[1], match[2]
    default = _DEFAULT.search(" ".join(description.split()))
    choices = tuple(map(_value, metavar[1:-1].split(","))) if metavar and metavar.startswith("{") else ()
    name = flag.lstrip("-").replace("-", "_")
    form = f"{flag} {{}}" if metavar else flag
    return Option(name, form, _value(default[1]) if default else None if metavar else False, choices)


def _value(text: str) -> str | bool | int | float | None:
    """Parses a default as Python prints it."""
    if text == "None" or not text:
        return None
    with suppress(Exception):
        number = yaml.safe_load(text) if text not in {"True", "False"} else text == "True"
        if isinstance(number, bool | int | float):
            return number
    with suppress(ValueError):
        return float(text)
    return text
