"""`python -m r2gen train | evaluate | generate | sheet`: the trainer's command line."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory: its modules must not shadow those imported below

from r2gen.linux import require_linux

require_linux("r2gen")

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml

from r2gen.config import Config, load, parse, with_compat
from r2gen.errors import DivergedError, InputError, LoaderError, StorageError, printable
from r2gen.logs import Board, RecordFile
from r2gen.progress import Lines

if TYPE_CHECKING:  # importing torch takes a second
    from r2gen.annotation import Study
    from r2gen.evaluate import Written
    from r2gen.model import R2Gen
    from r2gen.tokenizer import Tokenizer

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
_LONGEST_LINE = 2000
_STOPS = b"r2gen: stops after this step or evaluation; the same signal again ends it at once\n"


class _Parser(argparse.ArgumentParser):
    """A parser that reports a mistake on one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code. An unexpected error keeps its traceback."""
    try:
        given = _parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = given.run
        return run(given)
    except InputError as error:
        return _say(error, EXIT_BAD_INPUT)
    except (DivergedError, LoaderError) as error:
        return _say(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)


def _say(what: object, code: int) -> int:
    text = printable(what)
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}..."
    print(f"r2gen: {text}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m r2gen", description="Trains R2Gen, and writes radiology reports with it."
    )
    commands = parser.add_subparsers(
        required=True, metavar="train | evaluate | generate | sheet", parser_class=_Parser
    )
    train = commands.add_parser("train", help="train, or continue training")
    train.add_argument("--config", type=Path, required=True, help="YAML file, as `autotune export` writes it")
    train.add_argument("--workdir", type=Path, default=Path("results"), help="where checkpoints are kept")
    train.add_argument(
        "--records", type=Path, metavar="FILE", help="append every record there, a JSON object per line"
    )
    train.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="write the records there for TensorBoard"
    )
    _add_set(train)
    train.set_defaults(run=_train)
    for name, run, text in (
        ("evaluate", _evaluate, "score a checkpoint on a split"),
        ("generate", _generate, "write reports for a split, one JSON object per line"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--checkpoint", type=Path, required=True, help="ours, or the original R2Gen's")
        command.add_argument("--config", type=Path, help="settings; default: those in the checkpoint")
        command.add_argument("--data", type=Path, help="data set to use instead of the configuration's")
        command.add_argument("--split", choices=("train", "val", "test"), default="test")
        _add_set(command)
        command.set_defaults(run=run)
        if name == "evaluate":
            command.add_argument(
                "--reports", type=Path, metavar="FILE", help="write every report there, with its own scores"
            )
    _add_sheet(commands.add_parser("sheet", help="make a page to mark reports on without knowing the model"))
    return parser


def _add_sheet(sheet: argparse.ArgumentParser) -> None:
    sheet.add_argument(
        "reports", type=Path, nargs="+", help="what each model wrote, as `evaluate --reports` writes it"
    )
    sheet.add_argument("--output", type=Path, default=Path("sheet.html"), help="HTML file to write")
    sheet.add_argument("--samples", type=int, default=30, help="number of studies, spread over the split")
    sheet.set_defaults(run=_sheet)


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override a setting")


def _overrides(given: Sequence[str]) -> dict[str, Any]:
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set: NAME=VALUE, got {text!r}")
        try:
            values[name] = yaml.safe_load(value)
        except Exception:  # noqa: BLE001 - a value that is not YAML is text
            values[name] = value
    return with_compat(values)  # here: a complete configuration would set every quirk itself


def _train(given: argparse.Namespace) -> int:
    from r2gen.train import fit  # noqa: PLC0415 - importing torch takes a second

    config = parse({**load(given.config).model_dump(), **_overrides(given.set)})
    batch = f"effective batch {config.effective_batch_size}, {config.precision}"
    print(printable(f"training into {given.workdir}: {batch}"))
    with ExitStack() as stack:
        logs = list(_logs(given))
        for log in logs:
            stack.enter_context(log)
        stopped = stack.enter_context(_stop_signals())
        records = stack.enter_context(closing(fit(config.model_dump(mode="json"), given.workdir)))
        lines, bad_steps = Lines(), 0
        for record in records:
            lines.record(record)
            bad_steps = record.get("bad_steps", bad_steps)
            for log in logs:
                log.write(record)
            if stopped:
                records.close()
                is_behind = bad_steps and not _is_saved(given.workdir / "last.pt", record["samples"])
                where = "from the last checkpoint before the skipped steps" if is_behind else "from there"
                print(f"stopped after {record['samples']} samples; the same command continues {where}")
                return 128 + stopped[0]
        lines.end_epoch()
    best = given.workdir / "best.pt"
    print(printable(f"done; the best checkpoint is {best}{_megabytes(best)}"))
    return 0


def _logs(given: argparse.Namespace) -> Iterator[RecordFile | Board]:
    if given.records is not None:
        yield RecordFile(given.records)
    if given.tensorboard is not None:
        yield Board(given.tensorboard)


def _is_saved(file: Path, samples: int) -> bool:
    """Returns True if there is a checkpoint with this number of samples."""
    from r2gen import checkpoint  # noqa: PLC0415

    return file.exists() and bool(checkpoint.load(file)["samples"] == samples)


def _megabytes(file: Path) -> str:
    return f" ({file.stat().st_size / 1e6:.1f} MB)" if file.exists() else ""


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Notes the first Ctrl-C or SIGTERM, so that the step is finished; the second ends the process."""
    noted: list[int] = []

    def note(number: int, frame: Any) -> None:  # noqa: ARG001 - a signal handler's interface
        noted.append(number)
        with suppress(OSError):
            os.write(2, _STOPS)  # not print: the signal may have come in the middle of one
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _evaluate(given: argparse.Namespace) -> int:
    from r2gen import checkpoint, reports  # noqa: PLC0415
    from r2gen.annotation import load_annotation  # noqa: PLC0415
    from r2gen.evaluate import Scorer  # noqa: PLC0415
    from r2gen.metrics import OptionalMeteor  # noqa: PLC0415

    if given.reports is not None:
        checkpoint.prepare(given.reports.absolute().parent)
    model, tokenizer, config = _restored(given)
    splits = load_annotation(config).splits
    written, cost = _written(model, splits[given.split], tokenizer, config)
    with OptionalMeteor(wanted=config.meteor) as meteor:
        found = Scorer(splits["train"], tokenizer, config, meteor)(written)
    print(_lines({"split": given.split, "studies": len(written), **found, **cost}))
    if given.reports is not None:
        reports.write(given.reports, written)
    return 0


def _lines(values: Mapping[str, Any]) -> str:
    """Formats JSON with one line per name, and lists on one line."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    return f"{{\n{lines}\n}}"


def _generate(given: argparse.Namespace) -> int:
    from r2gen.annotation import load_annotation  # noqa: PLC0415

    model, tokenizer, config = _restored(given)
    studies = load_annotation(config).splits[given.split]
    for written in _written(model, studies, tokenizer, config)[0]:
        print(json.dumps({"id": written.study.id, "report": written.report}))
    return 0


def _sheet(given: argparse.Namespace) -> int:
    from r2gen.compared import entries, page  # noqa: PLC0415 - only this command needs it

    if given.samples < 1:
        raise InputError(f"--samples: at least 1, got {given.samples}")
    studies = entries.spread({str(file): entries.read(file) for file in given.reports}, given.samples)
    if not studies:
        raise InputError(f"reports: no study is in all of: {', '.join(map(str, given.reports))}")
    try:
        given.output.write_text(page.sheet(studies), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"--output {given.output}: cannot be written: {error.strerror}") from None
    print(printable(f"sheet: {given.output}: {len(studies)} studies"))
    return 0


def _restored(given: argparse.Namespace) -> "tuple[R2Gen, Tokenizer, Config]":
    """Returns the checkpoint's model and tokenizer, and the configuration to generate and score with.

    Two settings are not the checkpoint's, because a search's trials change them: METEOR, which they skip to
    save time, and halving the batch after an out-of-memory, which would hide the error from the tuner.
    """
    from r2gen.restore import restore  # noqa: PLC0415

    base = load(given.config) if given.config else None
    defaults = {} if base else {"meteor": True, "halve_on_oom": True}
    data = {"data": given.data} if given.data else {}
    return restore(given.checkpoint, base, defaults | _overrides(given.set) | data)


def _written(
    model: "R2Gen", studies: "Sequence[Study]", tokenizer: "Tokenizer", config: Config
) -> "tuple[list[Written], dict[str, float]]":
    """Generates reports for `studies`, and measures time and memory.

    Images are decoded before the clock starts: that happens once and does not depend on the model. A frozen
    extractor is timed, as it must run on new images: no cached features are used.
    """
    from r2gen import precision  # noqa: PLC0415
    from r2gen.data import load_images  # noqa: PLC0415
    from r2gen.evaluate import peak_memory_bytes, write_reports  # noqa: PLC0415
    from r2gen.shortage import HalvedBatch  # noqa: PLC0415

    load_images(studies, config, training=False)

    def timed(batch_size: int) -> "tuple[list[Written], float]":
        as_new = config.model_copy(update={"freeze_visual": False, "eval_batch_size": batch_size})
        begun = time.perf_counter()
        return write_reports(model, studies, tokenizer, as_new), time.perf_counter() - begun

    with precision.backends(config):
        written, seconds = HalvedBatch("eval_batch_size", config).run(timed)
    cost = {"seconds": seconds, "reports_per_s": len(written) / seconds}
    cost["peak_memory_bytes"] = peak_memory_bytes()
    cost["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    return written, cost


if __name__ == "__main__":
    sys.exit(main())
