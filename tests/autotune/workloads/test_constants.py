"""Constants of Python scripts are found, and replaced in place."""

from pathlib import Path

import pytest

from autotune.core.errors import InputError
from autotune.workloads.command import files
from autotune.workloads.in_place import Document

FILE = Path("train.py")
SCRIPT = """\
'''A training.'''
from __future__ import annotations
import torch

batch_size = 64  # how many sequences; größer
learning_rate, name = 3e-4, "run"
warm_up: int = -5
device = "cuda" if torch.cuda.is_available() else "cpu"
steps = 2 * 100
twice = 1
twice = 2
grows = 1
grows += 1


class Config:
    layers: int = 2
    dropout: float


def main():
    epochs = 3


def other():
    lr = 1


if __name__ == "__main__":
    compile = False
    main()
"""
CONSTANTS = {
    "batch_size": 64,
    "learning_rate": 3e-4,
    "name": "run",
    "warm_up": -5,
    "Config.layers": 2,
    "main.epochs": 3,
    "compile": False,
}


def test_constants_are_those_that_are_set_once_to_a_value() -> None:
    assert dict(Document(FILE, SCRIPT).root.leaves()) == CONSTANTS


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_every_other_character_stays(ends: str) -> None:
    text = SCRIPT.replace("\n", ends)
    new = {"batch_size": 128, "learning_rate": 0.001, "main.epochs": 1, "compile": True, "name": "a'b"}
    expected = text
    for before, after in [
        ("size = 64", "size = 128"),
        ('3e-4, "run"', '0.001, "a\'b"'),
        ("epochs = 3", "epochs = 1"),
        ("compile = False", "compile = True"),
    ]:
        expected = expected.replace(before, after)
    assert Document(FILE, text).replaced(new).text == expected
    assert Document(FILE, text).replaced(CONSTANTS).text == text


@pytest.mark.parametrize("name", ["twice", "grows", "device", "other.lr", "unknown", "Config.dropout"])
def test_a_name_that_is_no_constant_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: is no constant, or is set more than once"):
        Document(FILE, SCRIPT).replaced({name: 1})


@pytest.mark.parametrize(("text", "why"), [("a = (", "'\\(' was never closed"), ("a = '\0'", "null byte")])
def test_what_is_no_python_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=f"not Python: .*{why}"):
        Document(FILE, text)


@pytest.mark.filterwarnings("error")
def test_what_the_script_escapes_wrongly_is_its_own_affair() -> None:
    assert dict(Document(FILE, "size = 4; path = '\\d'").root.leaves())["size"] == 4


@pytest.mark.parametrize(
    "text",
    [
        'login(api_key="{}")',
        'login(\n    api_key=\n    "{}")',
        'os.environ["OPENAI_API_KEY"] = "{}"',
        'def main():\n    config.password: str = "{}"',
        'users = {{"api-key": "{}"}}',
        'users = {{"api-key":\n "{}"}}',
        'token: str | None = "{}"',
        'token = ("{}")',
        'token = other = R"{}"',
        'password = """{}"""',
        'def main(rate=0.1, *, token="{}"):\n    pass',
        f"# wandb login {'0a' * 20}",
        '# openai.api_key = "{}"',
        'password = b"{}"',
        'token = "{}" if size else ""',
        "os.system(\"curl --api-key='{}'\")",
    ],
)
def test_a_script_that_holds_a_key_is_not_copied_and_the_line_is_named(text: str) -> None:
    document = Document(FILE, f"size = 4\n{text.format('sk-made-up-0123456789')}\n")
    with pytest.raises(InputError, match=r"line [2-4]\b.*: looks like a key or a password"):
        files.refuse_secrets(document)


def test_ordinary_texts_of_a_script_are_no_keys() -> None:
    text = '''
"""Start it with WANDB_API_KEY=your_key python train.py."""
pad_token, tokenizer = "<|endoftext|>", AutoTokenizer.from_pretrained("EleutherAI/gpt-neo-125M")
wandb.init(project="a-project-of-mine", name="run-2026-11-27")
key = "loss"  # of the metrics
login(api_key="", project="a-project")
password = "" if key else ask("your password")
# token="..." is taken from the environment
class Token:
    "What is left of a word."
'''
    files.refuse_secrets(Document(FILE, text + SCRIPT))
