import json
import math
from dataclasses import fields, replace

import pytest

from autotune.reports import figures
from autotune.reports.model import Answer, Figure, SessionReport

from .handmade import OwnSection
from .searched import known


@pytest.fixture
def report(space):
    return figures.report(known(space))


def read(report):
    def refuse(constant):
        raise ValueError(constant)

    return json.loads(report.to_json(), parse_constant=refuse)


def test_scripts_get_every_field_under_its_name(report):
    found = read(report)
    assert found["format"] == 1
    assert found.keys() == {"format", *(f.name for f in fields(SessionReport))}
    assert found["answer"].keys() == {f.name for f in fields(Answer)}
    assert found["answer"]["factor"]["value"] == report.answer.factor.value
    assert [row["kind"] for row in found["trials"]] == [row.kind for row in report.trials]
    assert found["trials"][1]["config"]["precision"] == "bf16"


def test_the_workloads_own_section_has_the_fields_of_its_dataclass(report):
    found = read(replace(report, own=OwnSection()))["own"]
    assert found["title"] == "Own"
    assert found["tables"][0]["rows"] == [["bf16", "0.5"]]


def test_the_ablation_and_its_trials_have_their_names(report):
    step = replace(report.trials[1], kind="ablation")
    found = read(replace(report, trials=(*report.trials, step)))
    assert len(found["ablation"]) == len(report.ablation) > 0
    assert found["trials"][-1]["kind"] == "ablation"


def test_nan_and_infinity_are_null(report):
    odd = Answer("none", "", factor=Figure(math.nan, -math.inf, math.inf))
    found = read(replace(report, answer=odd, provenance={"a": {"b": [math.inf, 1.0]}}))
    assert found["answer"]["factor"] == {"value": None, "low": None, "high": None}
    assert found["provenance"] == {"a": {"b": [None, 1.0]}}
