"""Values are replaced in place, and every other byte of a text is unchanged."""

import copy
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.errors import InputError
from autotune.workloads.in_place import Document
from autotune.workloads.readers import steps

YAML, JSON = Path("a.yaml"), Path("a.json")
BASE = """\
# what we run
seed: 1   # the first
optim: &optim
  lr: !!float 3  # tuned by hand
  betas:
  - 0.9
  - 0.95  # the second
trainer: {precision: '16-mixed', devices: 1}
empty:
note: |
  two
  lines
# the end
"""


def replaced(text, values, file):
    """Returns the text of a file with `values` in it."""
    return Document(file, text).replaced(values).text


@pytest.mark.parametrize(
    ("values", "old", "new"),
    [
        ({"seed": 2}, "seed: 1   #", "seed: 2   #"),
        ({"seed": 1}, "", ""),
        ({"seed": "1"}, "seed: 1 ", "seed: '1' "),
        ({"optim.betas": [0.9, 0.999]}, "- 0.95  #", "- 0.999  #"),
        ({"optim.lr": 2}, "!!float 3 ", "2 "),
        ({"optim.betas[0]": 0.8}, "- 0.9\n", "- 0.8\n"),
        ({"optim.betas": [0.5, 0.6, 0.7]}, "- 0.9\n  - 0.95 ", "- 0.5\n  - 0.6\n  - 0.7 "),
        ({"trainer.precision": "bf16-mixed"}, "'16-mixed'", "'bf16-mixed'"),
        ({"trainer.precision": True}, "'16-mixed'", "true"),
        ({"empty": 1e-5}, "empty:\n", "empty: 1.0e-05\n"),
        ({"empty.a.b": "x"}, "empty:\n", "empty: {a: {b: x}}\n"),
        ({"note": "one"}, "|\n  two\n  lines\n", "one\n"),
        ({"note": "a\nb"}, "|\n  two\n  lines\n", '"a\\nb"\n'),
        ({"trainer.clip": 1.0}, "devices: 1}", "devices: 1, clip: 1.0}"),
        ({"optim.decay": 0.1}, "# the second\n", "# the second\n  decay: 0.1\n"),
        ({"new.x": [1]}, "  lines\n", "  lines\nnew: {x: [1]}\n"),
    ],
)
def test_only_the_value_changes_in_yaml(values, old, new):
    assert replaced(BASE, values, YAML) == BASE.replace(old, new, 1)


@pytest.mark.parametrize(
    ("base", "values", "expected"),
    [
        (
            "model.lr: 1\nmodel.size.k: 2\n",
            {"model.lr": 3, "model.size.k": 4},
            "model.lr: 3\nmodel.size.k: 4\n",
        ),
        ("a:\n  b.c:\n  - 1\n  b: 2\n", {"a.b.c[0]": 3, "a.b": 4}, "a:\n  b.c:\n  - 3\n  b: 4\n"),
        ("", {"a.b": 1, "c": 2}, "a: {b: 1}\nc: 2\n"),
        ("# nothing yet", {"a": 1}, "# nothing yet\na: 1\n"),
        ("\ufeffa: 1\r\n", {"a": 2, "b": 3}, "\ufeffa: 2\r\nb: 3\r\n"),
    ],
)
def test_only_the_value_changes_in_unusual_yaml(base, values, expected):
    assert replaced(base, values, YAML) == expected


@pytest.mark.parametrize(
    ("base", "values", "expected"),
    [
        ('{"a":1,"b":[1,2]}', {"a": None, "b[1]": 3}, '{"a":null,"b":[1,3]}'),
        ('{\n\t"a": {\n\t\t"b": "\\ud83d\\ude00"\n\t}\n}\n', {"a.c": 1}, None),
        ('{\n  "a": 1\n}', {"b.c": True}, '{\n  "a": 1,\n  "b": {"c": true}\n}'),
        ('{\r\n  "a": 1\r\n}', {"b": 2}, '{\r\n  "a": 1,\r\n  "b": 2\r\n}'),
        ("{ }", {"b": 2}, '{"b": 2}'),
        ('{"a": 1, "a": 2}', {"a": 3}, '{"a": 1, "a": 3}'),
        ('{"a": "x: y # no comment"}', {"a": "\u00e9"}, '{"a": "\\u00e9"}'),
    ],
)
def test_only_the_value_changes_in_json(base, values, expected):
    wanted = '{\n\t"a": {\n\t\t"b": "\\ud83d\\ude00",\n\t\t"c": 1\n\t}\n}\n' if expected is None else expected
    assert replaced(base, values, JSON) == wanted


@pytest.mark.parametrize(
    ("base", "path", "value", "said"),
    [
        (BASE, "seed.a", 1, "seed.a: seed is 1, and has no names below it"),
        (BASE, "optim.betas.a", 1, "optim.betas is a list, and has no names below it"),
        (BASE, "optim.betas[2]", 1, "there is no place optim.betas[2]: optim.betas has 2"),
        (BASE, "optim.betas", [], "cannot be replaced in place"),
        (BASE, "a..b", 1, "a path must be such as optim.lr or betas[0], got 'a..b'"),
        ("a: &x {b: 1}\nc: *x\n", "c.b", 2, "c.b: cannot be replaced in place, because it has an alias"),
        ("a: &x 1\nc: [*x]\n", "a", 2, "a: cannot be replaced in place, because it has an alias"),
        ("{a, b: 1}", "a", 2, "cannot be replaced in place"),
        ("- 1\n", "a", 2, "the file is a list, and has no names below it"),
        ("a: 1\n---\nb: 1\n", "a", 2, "not YAML: but found another document in line 2"),
        ("a: [", "a", 2, "not YAML: "),
        ("a: &x [*x]", "a", 2, "not YAML: "),
        ("a: \x07", "a", 2, "not YAML: ReaderError"),
    ],
)
def test_a_value_that_cannot_be_replaced_is_a_one_line_error(base, path, value, said):
    with pytest.raises(InputError) as error:
        replaced(base, {path: value}, YAML)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_merged_name_is_added_to_the_mapping_itself():
    text = "base: &base {lr: 1}\nrun:\n  <<: *base\n  seed: 2\n"
    assert replaced(text, {"run.lr": 3}, YAML) == f"{text}  lr: 3\n"


def test_a_name_is_added_behind_an_alias_and_an_alias_is_replaced():
    text = "base: &base {lr: 1}\nrun:\n  <<: *base  # all of it\nall: [*base, 3, *base]\nlast: *base\n"
    assert replaced(text, {"run.lr": 3}, YAML) == text.replace("of it\n", "of it\n  lr: 3\n")
    assert replaced(text, {"new": 3}, YAML) == f"{text}new: 3\n"
    assert replaced(text, {"last": 3}, YAML) == text.replace("last: *base", "last: 3")
    assert replaced(text, {"all[1]": 4}, YAML) == text.replace("3", "4")


def test_a_text_is_read_by_the_suffix_of_its_file():
    with pytest.raises(InputError, match=r"a\.toml: a file must be \.json, \.yaml, \.yml"):
        replaced("a = 1", {"a": 2}, Path("a.toml"))
    with pytest.raises(InputError, match=r"not JSON: Expecting value in line 1, column 7"):
        replaced('{"a": }', {"a": 1}, JSON)
    with pytest.raises(InputError, match=r"not JSON: RecursionError"):
        replaced("[" * 100_000, {"a": 1}, JSON)


NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=".[]"), min_size=1, max_size=6
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DATA = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)
NEW = SCALARS | st.lists(SCALARS, max_size=3)
YAML_STYLES = st.fixed_dictionaries(
    {
        "default_flow_style": st.sampled_from([True, False, None]),
        "default_style": st.sampled_from([None, "'", '"']),
        "indent": st.sampled_from([2, 4]),
        "width": st.sampled_from([20, 1000]),
        "line_break": st.sampled_from(["\n", "\r\n"]),
        "allow_unicode": st.booleans(),
    }
)
JSON_STYLES = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 2, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " : ")]),
        "ensure_ascii": st.booleans(),
    }
)


def changed(data, path, value):
    """Returns a copy of `data` with `value` at `path`, made independently."""
    data = copy.deepcopy(data)
    *above, last = steps(path)
    inside = data
    for step in above:
        inside = inside[step]
    inside[last] = value
    return data


def holds(text, data, draw, file, load):
    """Checks that only one leaf and one added name differ, in the values and in the bytes."""
    root = Document(file, text).root
    leaves = [path for path, _ in root.leaves()]
    for path in [draw.draw(st.sampled_from(leaves)), "added"] if leaves else ["added"]:
        value = draw.draw(NEW)
        new = replaced(text, {path: value}, file)
        assert repr(load(new)) == repr(changed(data, path, value))
        if path != "added" or "added" in data:
            place = root
            for step in steps(path):
                place = place.inner[step]
            assert new.startswith(text[: place.start])
            assert new.endswith(text[place.end :])
        else:
            shared = next((i for i, (a, b) in enumerate(zip(text, new, strict=False)) if a != b), len(text))
            assert new.endswith(text[shared:])


@given(DATA, YAML_STYLES, st.data())
@settings(max_examples=60)
def test_only_one_path_changes_in_any_yaml(data, style, draw):
    holds(yaml.safe_dump(data, sort_keys=False, **style), data, draw, YAML, yaml.safe_load)


@given(DATA, JSON_STYLES, st.data())
@settings(max_examples=60)
def test_only_one_path_changes_in_any_json(data, style, draw):
    holds(json.dumps(data, **style), data, draw, JSON, json.loads)
