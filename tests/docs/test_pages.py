"""What stands in the documents is right: every block, every command, every link."""

import configparser
import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest
import typer
import yaml

from autotune.cli.app import app
from autotune.space import builtin, spaces
from autotune.storage.store import StoredSession
from r2gen import config as trainer

from . import pages, shell

LANGUAGES = {"bash", "python", "yaml", "json", "text"}
DRAWN = {"mermaid"}  # by GitHub; on the site, only with a script from elsewhere
SECTIONS = {"limits", "objective", "budget"}


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_block_says_what_it_is(page):
    allowed = LANGUAGES if page in pages.SITE else LANGUAGES | DRAWN
    assert [str(block) for block in pages.blocks(page) if block.language not in allowed] == []


COMMANDS = [(block, line) for block in pages.of_language("bash") for line in shell.lines(block.text)]
NAMED = re.compile(r"(python -m )?(autotune|lab|r2gen) \w+")  # a command that is spoken of, and not given
INLINE = [
    (pages.name(page), f"{code} --help" if NAMED.fullmatch(code) else code)
    for page in pages.PAGES
    for code in pages.inline_code(page)
    if re.match(r"(python -m )?(autotune|r2gen|lab) |python benchmarks/|make ", code)
]
EXAMPLES = [
    (name, example[1])
    for name, command in typer.main.get_command(app).commands.items()
    if (example := re.search(r"Example: (autotune .*)", command.help or ""))
]


@pytest.mark.parametrize(
    ("where", "line"), [*COMMANDS, *INLINE, *EXAMPLES], ids=lambda value: str(value).replace("/", ".")
)
def test_every_command_can_be_given(where, line):
    shell.check(line)


@pytest.mark.parametrize(
    "line",
    [
        "python -m autotune serach",
        "python -m autotune search --dta data/iu_xray",
        "python -m autotune resume",
        "python -m autotune search --trials many",
        "python -m r2gen train",
        "python -m r2gen evaluate --checkpoint best.pt --split tset",
        "python benchmarks/bench_step.py --models full",
        "make serach",
        'make search ARGS="--dta x"',
        "ray start --haed",
        "frobnicate --all",
    ],
)
def test_a_command_that_cannot_be_given_is_found(line):
    assert shell.refused(line)


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_option_that_is_spoken_of_exists(page):
    spoken = {code.split()[0].partition("=")[0] for code in pages.inline_code(page) if code.startswith("-")}
    assert spoken - shell.options() == set()


@pytest.mark.parametrize("block", pages.of_language("yaml"), ids=str)
def test_yaml_is_a_search_space_or_settings_of_the_trainer(block):
    values = yaml.safe_load(block.text)
    if values.keys() <= SECTIONS:
        values = yaml.safe_load(builtin.space_file("gpu").read_text(encoding="utf-8")) | values
    if "knobs" in values:
        spaces.complete(spaces.from_values(values, str(block)), str(block))
        jsonschema.validate(values, spaces.schema(), jsonschema.Draft7Validator)
    else:
        trainer.parse({"data": "data", **values})


@pytest.mark.parametrize("block", pages.of_language("json"), ids=str)
def test_json_is_json(block):
    assert json.loads(block.text)


@pytest.mark.parametrize("page", [p for p in pages.PAGES if p not in pages.SITE], ids=pages.name)
def test_links_of_pages_outside_the_site_lead_somewhere(page):
    for link in pages.links(page):
        if re.match(r"https?://", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in pages.anchors(target), link


def test_tensorboard_is_pointed_at_the_directory_of_a_session_that_has_its_files():
    lines = [line for _, line in COMMANDS if line.startswith("tensorboard")]
    assert len(lines) >= 2
    name = StoredSession(Path("runs/s")).tracker_dir("tensorboard").name
    assert [line for line in lines if Path(shell.words(line)[-1]).name != name] == []


def test_the_readme_begins_with_its_two_commands():
    first = next(block for block in pages.blocks(pages.PAGES[0]) if block.language == "bash")
    assert [shlex.split(line, comments=True) for line in first.text.splitlines()] == [
        ["make", "search"],
        ["make", "test"],
    ]


ROOMS = sorted(file.parent.name for file in (pages.ROOT / "autotune").glob("*/__init__.py"))


def test_the_architecture_shows_the_rooms_in_the_layers_of_the_contract():
    contract = configparser.ConfigParser()
    contract.read(pages.ROOT / ".importlinter")
    layers = contract["importlinter:contract:rooms"]["layers"].replace("|", " ").split()
    page = (pages.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = page.partition("## Rooms")[2].partition("\n## ")[0]
    drawn = re.search(r"```text\n(.*?)```", rooms, re.DOTALL)
    assert drawn is not None
    assert drawn[1].split() == layers[1:]  # without __main__
    assert re.findall(r"^\| `(\w+)` \|", rooms, re.MULTILINE) == layers[1:]
    assert sorted(layers[1:]) == ROOMS
