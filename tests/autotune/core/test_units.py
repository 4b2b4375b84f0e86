import pytest

from autotune.core import units
from autotune.core.errors import InputError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("90s", 90), ("2h", 7200), ("1.5m", 90), (45, 45), ("1d", 86400), ("10 min", 600)),
        *(("3m50s", 230), ("1h 00m", 3600), (" 1d 2h 0.5m ", 93630)),
    ],
)
def test_durations_are_parsed(text, expected):
    assert units.seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "-3s", "0", "3 weeks", "1e3", "nan", None, "1h30", "1h,30m", "0m 0s", "5 4s"]
)
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(InputError, match="a duration is a positive number"):
        units.seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3GiB", 3 * 2**30), ("800MB", 800_000_000), ("1K", 1024), (512, 512), ("1.5 TiB", 3 * 2**39)],
)
def test_sizes_are_parsed(text, expected):
    assert units.size_bytes(text) == expected


@pytest.mark.parametrize("text", ["GiB", "3 bits", "-1GB", "0"])
def test_an_invalid_size_is_refused(text):
    with pytest.raises(InputError, match="a size is a positive number"):
        units.size_bytes(text)


@pytest.mark.parametrize(
    ("value", "exact", "rounded"),
    [
        (0.2, "0s", "5m"),
        (97, "1m37s", "5m"),
        (660, "11m", "15m"),
        (7200, "2h", "2h"),
        (50_000, "13h53m20s", "1d"),
        (100_000, "27h46m40s", "2d"),
    ],
)
def test_durations_are_formatted_for_options(value, exact, rounded):
    assert (units.exact(value), units.round_up(value)) == (exact, rounded)
    assert units.seconds(rounded) >= value
    assert exact == "0s" or units.seconds(exact) == value, "the advice can be taken"


@pytest.mark.parametrize(
    ("value", "expected"), [(3.2, "3s"), (65, "1m 05s"), (3600, "1h 00m"), (7640, "2h 07m")]
)
def test_durations_are_formatted_for_people(value, expected):
    assert units.format_seconds(value) == expected


def test_sizes_are_formatted_for_people():
    assert units.format_bytes(312 * 2**10) == "312 KiB"
    assert units.format_bytes(812 * 2**20) == "812 MiB"
    assert units.format_bytes(2.4 * 2**30) == "2.4 GiB"
