"""A configuration has one meaning, however it was written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from r2gen.config import Config, dump, load, parse, with_compat
from r2gen.errors import InputError

QUIRKS = ("block_trigrams", "single_beam", "cut_reports", "test_scores")


def _quirks(config: Config) -> tuple[Any, ...]:
    return tuple(getattr(config, name) for name in QUIRKS)


def test_the_originals_quirks_are_off() -> None:
    assert _quirks(parse({"data": "d"})) == ("off", "greedy", "end", False)


def test_compat_restores_all_of_them() -> None:
    assert _quirks(parse({"data": "d", "compat": "original"})) == ("greedy_only", "sample", "run_on", True)


def test_explicit_settings_override_compat() -> None:
    config = parse({"data": "d", "compat": "original", "cut_reports": "end", "test_scores": False})
    assert _quirks(config) == ("greedy_only", "sample", "end", False)


@pytest.mark.parametrize(
    "changes", [{}, {"compat": "original"}, {"compat": "original", "cut_reports": "end"}]
)
def test_a_written_configuration_is_read_back_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    config = parse({"data": "d", **changes})
    file = tmp_path / "config.yaml"
    file.write_text(dump(config))
    assert load(file) == config
    assert set(yaml.safe_load(dump(config))) == set(Config.model_fields)


def test_compat_on_the_command_line_outranks_a_whole_configuration() -> None:
    whole = parse({"data": "d"}).model_dump()
    assert parse({**whole, **with_compat({"compat": "original"})}) == parse(
        {"data": "d", "compat": "original"}
    )


def test_yamls_bare_on_and_off_are_words() -> None:
    config = parse(yaml.safe_load("{data: d, compile: off, compat: off, block_trigrams: on}"))
    assert (config.compile, config.compat, config.block_trigrams) == ("off", "off", "on")


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"num_heads": 7}, "num_heads must divide d_model, got 7 and 512"),
        ({"rm_num_heads": 3}, "rm_num_heads must divide d_model, got 3 and 512"),
        ({"compat": ["original"]}, r"compat: input should be 'off' or 'original', got \['original'\]"),
        ({"block_trigrams": 2}, "block_trigrams: input should be 'off', 'on' or 'greedy_only', got 2"),
        ({"max_bad_steps": -1, "surprise": 1}, r"max_bad_steps: .* got -1; surprise: no such setting$"),
        ({"micro_batchsize": 4}, r"micro_batchsize: no such setting, did you mean micro_batch_size\?$"),
        ({"image_cache_gib": 1e300}, "image_cache_gib: input should be less than or equal to 1048576"),
    ],
    ids=str,
)
def test_a_mistake_is_named(make_config: Callable[..., Config], changes: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        parse({"data": "d", **changes})
