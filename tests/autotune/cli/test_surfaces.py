"""Every surface shows the same figures of a session."""

import math
import random
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from autotune.judging.accounts import costs
from autotune.judging.decisions import ablation
from autotune.judging.decisions.history import History
from autotune.space import configurations
from autotune.space.sections import Objective
from autotune.storage import studies
from autotune.storage.store import Options, StoredSession
from lab.replay import replay
from lab.replay.drift import Drift
from lab.replay.table import Header, Table
from tests import surfaces
from tests.autotune.conftest import made_up_run
from tests.autotune.reports import searched

KEPT = Path(__file__).parents[2] / "fixtures" / "sessions"


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A session on disk with these trials."""
    monkeypatch.syspath_prepend(str(KEPT))

    def make(trials, space, name="s"):
        known = space.model_copy(update={"workload": "kept_workload:fit"})
        made = StoredSession.create(tmp_path / name, known, Options(wandb="off"), {"created": "now"})
        study = studies.open_study(made.study_file, known)
        for trial in trials:
            beside = {"ablation_of": trial.ablation_of, "race": trial.race}
            studies.begin(study, known, trial.config, trial.repeat, **beside)
            studies.end(study, trial, known.limits.memory_fraction)
        return made.root

    return make


@pytest.mark.parametrize("name", ["drawn", "iu_xray", "format-2"])
def test_a_real_session_has_the_same_figures_everywhere(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(KEPT))
    place = Path(shutil.copytree(KEPT / name, tmp_path / name))
    assert surfaces.contradictions(surfaces.told(place)) == {}


def test_a_trial_that_runs_has_the_same_figures_on_every_surface(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(KEPT))
    place = Path(shutil.copytree(KEPT / "format-2", tmp_path / "s"))
    with StoredSession.open(place).lock():
        told = list(surfaces.told(place))
    assert surfaces.contradictions(told) == {}
    where = {
        surface for surface, thing, figure in told if thing == ("speed", 4) and figure not in surfaces.NONE
    }
    assert where >= {"status", "status --json", "live", "events", "report.json", "page"}


@pytest.mark.parametrize(
    ("select", "is_equal"),
    [
        ("same-quality", False),
        pytest.param("same-quality", True, marks=pytest.mark.slow),
        pytest.param("same-training", False, marks=pytest.mark.slow),
    ],
)
def test_a_search_on_an_unsteady_machine_has_the_same_figures_everywhere(grid, session, select, is_equal):
    """Equal settings have another speed in each run; some of the searches have a winner."""
    space = grid.model_copy(update={"objective": Objective(keep=0.9, select=select)})
    rng = random.Random(0)
    runs = [
        made_up_run(space, config, seed, rng)
        for config in configurations.allowed(space) or []
        for seed in range(3)
    ]
    table = Table(Header(space, {}), runs, Drift((1.3,) * 20 + (0.7,) * 20))
    trials = replay.search(table, 3, 8, everything_is=space.baseline_config if is_equal else None).trials
    assert any(t.repeat for t in trials)
    assert surfaces.contradictions(surfaces.told(session(trials, space))) == {}


def losses(run):
    """Returns the same run with qualities that fall like a loss, from the chance level."""
    seen = tuple(point._replace(quality=2.5 - 5 * point.quality, chance=2.5) for point in run.evaluations)
    return replace(run, evaluations=seen)


def turned(run):
    """Returns the report on such a run by a workload that negates its loss."""
    return replace(run, evaluations=tuple(negative(point) for point in run.evaluations))


def negative(point):
    return point._replace(quality=0.0 - point.quality, chance=0.0 - point.chance)


@pytest.mark.parametrize(
    "rule",
    [
        {"within": 0.05},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"target": 1.8}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_loss_is_shown_with_its_own_sign_everywhere(grid, session, rule):
    """Runs the search for a loss to minimise, counted in tokens, and for the negative loss."""
    rng = random.Random(0)
    runs = [
        losses(made_up_run(grid, config, seed, rng))
        for config in configurations.allowed(grid) or []
        for seed in range(3)
    ]
    slack = rule | ({} if "within" in rule else {"keep": 0.95})
    lower = grid.model_copy(update={"objective": Objective(minimize="val_loss", **slack), "unit": "tokens"})
    slack |= {"target": -slack["target"]} if "target" in slack else {}
    higher = grid.model_copy(update={"objective": Objective(quality="val_loss", **slack)})
    ours = replay.search(Table(Header(lower, {}), runs), 3, 8)
    theirs = replay.search(Table(Header(higher, {}), list(map(turned, runs))), 3, 8)
    assert [t.config for t in ours.trials] == [t.config for t in theirs.trials]
    assert [t.outcome.status for t in ours.trials] == [t.outcome.status for t in theirs.trials]
    assert ours.winner == theirs.winner
    places = session(ours.trials, lower, "lower"), session(theirs.trials, higher, "higher")
    said, negative = (
        [one for one in surfaces.told(place) if one[2] not in surfaces.NONE] for place in places
    )
    assert surfaces.contradictions(said) == {}
    qualities = [(where, thing, figure) for where, thing, figure in said if "quality" in thing[0]]
    assert {where for where, *_ in qualities} >= {"status", "log", "events", "page", "W&B", "front", "plots"}
    assert all(float(figure) > 0 for *_, figure in qualities)
    assert [(w, t, f.removeprefix("-")) for w, t, f in negative] == said


def test_no_text_about_a_loss_has_the_internal_sign_or_another_unit(grid, session):
    goal = Objective(minimize="val_loss", within=0.05, select="same-quality")
    space = grid.model_copy(update={"objective": goal, "unit": "tokens"})
    trials = [
        searched.trial(
            space,
            n,
            10.0 + n,
            -2.0 - n / 100,
            micro_batch_size=4 * 2**n,
            scores={"val_loss": 2.0 + n / 100},
        )
        for n in range(3)
    ]
    place = session(trials, space)
    texts = list(surfaces.texts(place))
    promise = "keeps val_loss within 0.05 of the baseline's; lower val_loss is better"
    assert sum(promise in unescape(text) for text in texts) >= 3, "status, and two reports"
    for text in texts:
        code = r"<(style|script)(?! type=.application/json).*?</\1>"
        plain = unescape(re.sub(code, "", text, flags=re.DOTALL)).replace("\\", "")
        assert not re.search(r"val.loss\W+-\d|-2\.0\d", plain)
        assert not re.search(r"samples(/s| per (second|trial|run))|\d samples", plain)


def with_ablation(space):
    """A confirmed winner, whose runs and race measured different speeds, and its ablation step."""
    trials = [*searched.confirmed(space), searched.trial(space, 10, 5, 0.1, num_workers=8)]
    half = ablation.steps(History(trials, space))[0].config
    return [*trials, searched.trial(space, 11, 21, None, ablation_of=1, status="stopped", **dict(half))]


def test_a_confirmed_winner_has_the_same_figures_everywhere(space, session):
    told = list(surfaces.told(session(with_ablation(space), space)))
    assert surfaces.contradictions(told) == {}
    found = {(what, number): figure for _, (what, number), figure in told}
    assert found["factor", 1] == found["factor", 5] == "3.00", "that of a repeat is that of what it repeats"
    assert found["factor", 0] == found["factor", 4] == "1.00"
    assert found["speed of a run", 5] == "29.0", "which no figure of the settings is"


def test_a_difference_between_two_surfaces_is_found():
    told = [("page", ("factor", 1), "3.00"), ("status", ("factor", 1), "10.01"), ("page", ("factor", 2), "-")]
    assert surfaces.contradictions(told) == {("factor", 1): {"3.00": ["page"], "10.01": ["status"]}}


def test_figures_are_the_baselines_times_their_factors_and_the_ablation_multiplies_to_the_gain(space):
    history = History(with_ablation(space), space)
    baseline = history.throughput(history.trial(0)).value
    for trial in history.trials:
        if not trial.race:
            assert history.throughput(trial).value == pytest.approx(
                baseline * history.factor(trial).value, 1e-12
            )
    steps = ablation.steps(history)
    assert len([step for step in steps if step.factor]) == 2
    product = math.prod(step.factor.value for step in steps)
    assert product == pytest.approx(costs.gain(history.trial(1), history).value, 1e-12)
    assert steps[-1].throughput == history.throughput(history.trial(1))
