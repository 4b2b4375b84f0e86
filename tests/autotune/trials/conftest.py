"""Makes the workloads of these tests importable for the children of trials."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def _importable():
    """Lets children import the workloads of the tests: they inherit their supervisor's sys.path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1])
        yield
