"""The command `report`, which shows a session in one file."""

import math
from pathlib import Path

from autotune.cli.options import Priced
from autotune.core import files
from autotune.core.errors import InputError, printable
from autotune.judging.accounts.costs import Prices
from autotune.reports.model import FORMATS
from autotune.sessions import option_values, reporting

_STDOUT = Path("-")


def report(session: Path, form: str, output: Path | None, samples: int, prices: Prices | None = None) -> int:
    option_values.one_of("--format", form, FORMATS)
    text, file = reporting.render(session, form, samples, prices)
    if output == _STDOUT:
        files.write_to_stdout(text)
    else:
        print(printable(reporting.write(output or file, text, is_ours=output is None)))
    return 0


def prices(given: Priced) -> Prices | None:
    """Returns the prices, None if not given; raises InputError for invalid ones."""
    per_hour, per_kwh, currency = given.price_per_hour, given.price_per_kwh, given.currency
    for option, price in (("--price-per-hour", per_hour), ("--price-per-kwh", per_kwh)):
        if price is not None and not (math.isfinite(price) and price >= 0):
            raise InputError(f"{option}: must be a number from 0, got {price:g}")
    if per_hour is None and per_kwh is None:
        if currency:
            raise InputError("--currency: goes with --price-per-hour or --price-per-kwh, got neither")
        return None
    return Prices(per_hour, per_kwh, currency)
