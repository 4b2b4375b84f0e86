"""The trainer on a CUDA device without values: every precision trains, evaluates and writes.

What cannot be seen so: the values themselves, and whether a kernel exists for a device.
"""

import json
from importlib.util import find_spec
from typing import Any, get_args

import pytest

from r2gen.config import Precision
from tests.gpu import guard

pytestmark = pytest.mark.slow

# A case takes some seconds: always those that take most ways between them, the others where there is time.
ALWAYS = ("fp16 with checkpointing", "fp8 with words drawn")
SOAK = (*get_args(Precision), "bf16 with a frozen extractor", "bf16 with two views")

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, soak: bool) -> Found:
    """What became of each case."""
    cases = [*ALWAYS, *(SOAK if soak else ())]
    asked = [case for case in cases if "fp8" not in case or find_spec("torchao")]
    library = guard.built(tmp_path_factory.mktemp("guard"))
    lines = guard.run(library, "tests.gpu.rehearsal", asked).splitlines()
    return {case.pop("case"): case for case in map(json.loads, lines)}


@pytest.fixture(params=[*ALWAYS, *(pytest.param(case, marks=pytest.mark.soak) for case in SOAK)])
def case(found: Found, request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param not in found:
        pytest.skip("needs torchao")
    return found[request.param]


def test_it_trains_and_evaluates_without_mixing_devices_or_types(case: dict[str, Any]) -> None:
    assert "failure" not in case, case["failure"]
    assert case["cudnn_attention"] == [False]


def test_a_step_waits_for_its_figures_and_for_its_end(case: dict[str, Any]) -> None:
    """The figures decide whether the step is made; until its end its record would be early."""
    assert case["waits"][1] == {"copy to the host": 1, "event": 1}


def test_decoding_waits_once_a_word(case: dict[str, Any]) -> None:
    """Of the four words: which images go on. Twice an evaluation: the losses, and the words."""
    waits = case["waits"][2]
    assert sum(waits.get(name, 0) for name in ("nonzero", "mask as an index")) <= 4
    assert waits["copy to the host"] == 2
