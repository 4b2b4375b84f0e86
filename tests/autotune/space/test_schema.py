"""The JSON Schema of search spaces accepts what the tuner accepts, and describes every field."""

import contextlib
import io
from pathlib import Path

import jsonschema
import pytest
import yaml

from autotune import __main__ as cli
from autotune.core import files, units
from autotune.core.errors import InputError
from autotune.space import builtin, spaces

SCHEMA = spaces.schema()
BUILT_IN = sorted(builtin.spaces_dir().glob("*.yaml"))
SHIPPED = [*BUILT_IN, Path(__file__).parents[3] / "examples" / "linear.yaml"]

R2GEN = "workload: r2gen\nbaseline: {micro_batch_size: 4, learning_rate: 1.0e-3, precision: fp32}\n"
OTHER = "workload: my.module:fit\nbaseline: {width: 4}\n"
ONE_KNOB = "knobs: {micro_batch_size: {choice: [4, 8]}}\n"


def fits(text):
    return jsonschema.Draft7Validator(SCHEMA).is_valid(yaml.safe_load(text))


def test_the_shipped_schema_is_current(capsys, tmp_path):
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert cli.main(["schema"]) == 0
    shipped = (builtin.spaces_dir() / "schema.json").read_text(encoding="utf-8")
    assert shipped == capsys.readouterr().out, "python -m autotune schema -o search_spaces/schema.json"
    assert cli.main(["schema", "-o", str(tmp_path / "own.json")]) == 0
    assert (tmp_path / "own.json").read_text(encoding="utf-8") == shipped


def test_output_is_utf8_on_any_terminal():
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    with contextlib.redirect_stdout(terminal):
        files.write_to_stdout("µ")
    assert terminal.buffer.getvalue().decode("utf-8") == "µ"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_spaces_fit_and_name_the_schema(file):
    text = file.read_text(encoding="utf-8")
    named = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (file.parent / named).resolve() == (builtin.spaces_dir() / "schema.json").resolve()
    assert fits(text)


@pytest.mark.parametrize("file", BUILT_IN, ids=lambda file: file.name)
def test_dumped_spaces_fit(file):
    space = spaces.parse(file.read_text(encoding="utf-8"), file.name)
    assert fits(spaces.dump(space))


@pytest.mark.parametrize(
    "text",
    [
        R2GEN + ONE_KNOB,
        R2GEN + "knobs: {learning_rate: {scale: sqrt}}",
        R2GEN + "knobs: {learning_rate: {scale: sqrt, multiplier: {uniform: [0.5, 2]}}}",
        R2GEN + "knobs: {learning_rate: {loguniform: [1.0e-5, 1.0e-2]}}",
        R2GEN + "knobs: {accumulation_steps: {keep: effective_batch_size}}",
        R2GEN + ONE_KNOB + "budget: {time: 2h, repeats: 0}",
        R2GEN + ONE_KNOB + "objective: {select: same-quality, target: 0.2}",
        R2GEN + ONE_KNOB + "objective: {select: same-quality}",
        R2GEN + ONE_KNOB + "objective: {select: same-training, target: null}",
        R2GEN + ONE_KNOB + "objective: {constraints: {rouge_l: '>= 0.2', loss: ' <= -1.5e-3 '}}",
        OTHER + "knobs: {width: {randint: [1, 9]}, depth: {choice: [1, two, null, true]}}",
    ],
)
def test_valid_spaces_fit(text):
    spaces.parse(text, "test")
    assert fits(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "workload: r2gen",
        R2GEN,
        R2GEN + "knobs: {}",
        R2GEN + "knobs: {micro_batch_size: [4, 8]}",
        R2GEN + "knobs: {micro_batch_size: {choice: []}}",
        R2GEN + "knobs: {micro_batch_size: {choice: [4], randint: [1, 9]}}",
        R2GEN + "knobs: {learning_rate: {loguniform: [1.0e-5]}}",
        R2GEN + "knobs: {learning_rate: {scale: linear}}",
        R2GEN + "knobs: {accumulation_steps: {keep: micro_batch_size}}",
        R2GEN + ONE_KNOB + "limits: {memory_fraction: 1.5}",
        R2GEN + ONE_KNOB + "limits: {memory: 1}",
        R2GEN + ONE_KNOB + "objective: {select: best}",
        R2GEN + ONE_KNOB + "objective: {select: fastest}",
        R2GEN + ONE_KNOB + "objective: {constraints: {rouge_l: '> 0.2'}}",
        R2GEN + ONE_KNOB + "objective: {constraints: {rouge_l: '>= 0.2 or so'}}",
        R2GEN + ONE_KNOB + "objective: {constraints: {rouge_l: 0.2}}",
        R2GEN + ONE_KNOB + "budget: {until_learnt: often}",
        R2GEN + ONE_KNOB + "budget: {time: soon}",
        R2GEN + ONE_KNOB + "budget: {trials: 0}",
    ],
)
def test_refused_spaces_do_not_fit(text):
    with pytest.raises(InputError):
        spaces.parse(text, "test")
    assert not fits(text)


@pytest.mark.parametrize("text", ["90s", "2h", "1.5 d", " 90 min", "3600", "2 weeks", "h", "-1s", "1e3", ""])
def test_a_duration_fits_if_it_can_be_parsed(text):
    try:
        units.seconds(text)
    except InputError:
        assert not fits(R2GEN + ONE_KNOB + f"budget: {{time: '{text}'}}")
    else:
        assert fits(R2GEN + ONE_KNOB + f"budget: {{time: '{text}'}}")


def test_every_field_has_a_description():
    objects = [SCHEMA, *SCHEMA["$defs"].values()]
    fields = {name: field for part in objects for name, field in part["properties"].items()}
    assert len(fields) > 40
    assert [name for name, field in fields.items() if not field.get("description")] == []
