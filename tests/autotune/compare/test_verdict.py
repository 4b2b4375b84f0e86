"""The recommended precision, by scores and number of seeds."""

import random

import pytest

from autotune.compare.results import Model
from autotune.compare.verdict import verdict
from autotune.core.measurement import Evaluation, Measurement, Throughput
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.decisions.quality import Noise, QualityAnswer
from autotune.space.sections import Objective

GOAL = Objective()
SPEEDS = {"baseline": 100.0, "fp32": 150.0, "bf16": 200.0, "fp16": 250.0}


def model(label, quality, seed=0, **rest):
    training = Measurement(Throughput(SPEEDS[label], 1.0, 50, 9.0), 0.5, 400, samples=400)
    scores = {} if quality is None else {"bleu_4": quality, **rest.pop("scores", {})}
    given = {"training": training, "samples": 400, "outcome": Outcome(Status.COMPLETED), **rest}
    return Model(label, {"precision": label}, scores=scores, seed=seed, **given)


def runs(**qualities):
    """Returns a model for each quality, with seeds from 0."""
    return {
        label: tuple(model(label, quality, seed) for seed, quality in enumerate(found))
        for label, found in qualities.items()
    }


NEAR = (0.1600, 0.1605, 0.1598, 0.1602)  # the scatter of equal models
LOW = (0.1300, 0.1310, 0.1290, 0.1305)


def test_the_fastest_that_keeps_the_quality_is_taken():
    found = verdict(runs(baseline=NEAR, fp32=NEAR, bf16=NEAR, fp16=LOW), GOAL)
    assert found.label == "bf16"
    assert [(one.label, one.answer) for one in found.standings] == [
        ("fp16", QualityAnswer.LOST),
        ("bf16", QualityAnswer.KEPT),
        ("fp32", QualityAnswer.KEPT),
        ("baseline", QualityAnswer.KEPT),
    ]
    goal = (
        "The fastest precision that keeps 95% of the baseline's improvement in bleu_4 on the test split is "
    )
    winner = "bf16, 2.00x as fast as the baseline: bleu_4 0.1601 instead of 0.1601, "
    assert found.sentence.startswith(goal + winner)
    assert " of the baseline's improvement, 4 seeds each." in found.sentence
    assert found.sentence.endswith(found.standings[0].shown + ".")
    assert (
        "Faster, but not good enough: fp16, 2.50x as fast as the baseline, bleu_4 0.1301 instead of"
        in found.sentence
    )


def test_one_seed_of_each_decides_nothing_and_says_how_many_would():
    once = runs(baseline=NEAR[:1], bf16=NEAR[:1])
    found = verdict(once, GOAL)
    first = found.standings[0]
    assert (found.label, first.answer, first.seeds_needed) == (None, QualityAnswer.UNDECIDED, 3)
    assert "how much equal runs differ is not known, 1 seed each" in found.sentence
    assert found.sentence.endswith("3 seeds each may decide it: compare --seeds 3.")
    noisy = verdict(once, GOAL, Noise(0.01, 20))
    assert noisy.label is None
    assert noisy.standings[0].seeds_needed > 3, "equal runs of the search differ by more"


def test_an_undecided_faster_label_blocks_the_verdict():
    unsure = (0.1560, 0.1480, 0.1600, 0.1530)
    found = verdict(runs(baseline=NEAR, bf16=NEAR, fp16=unsure), GOAL)
    assert found.label is None
    assert found.sentence.startswith("Not decided whether fp16, 2.50x as fast as the baseline, keeps 95%")
    assert "The fastest whose quality is decided is bf16, 2.00x" in found.sentence
    needed = found.standings[0].seeds_needed
    assert f"{needed} seeds each may decide it: compare --seeds {needed}." in found.sentence


def test_the_baseline_stays_if_every_faster_label_has_lost():
    found = verdict(runs(baseline=NEAR, bf16=LOW), GOAL)
    assert found.label == "baseline"
    assert found.sentence.startswith("The baseline stays: no faster precision keeps 95%")


def test_a_label_not_significantly_slower_is_named():
    equal = tuple(model("bf16", q, seed) for seed, q in enumerate(NEAR))
    found = verdict({**runs(baseline=NEAR, bf16=NEAR), "fp32": equal}, GOAL)
    assert "May be as fast" not in found.sentence, "equal figures have no interval"
    once = {label: models[:1] for label, models in runs(baseline=NEAR, bf16=NEAR, fp32=NEAR).items()}
    near = Measurement(Throughput(199.5, 1.0, 50, 9.0), 0.5, 400, samples=400)
    any_quality = Objective(keep=0)
    found = verdict({**once, "fp32": (model("fp32", 0.16, training=near),)}, any_quality)
    assert found.label == "bf16"
    assert found.sentence.endswith("May be as fast: fp32.")


def test_scores_per_item_count():
    """A small test split with a large scatter decides nothing, even if the means are equal."""
    rng = random.Random(0)

    def scored(label, n):
        scatter = [{"bleu_4": tuple(rng.gauss(q, 0.2) for _ in range(n))} for q in NEAR]
        return tuple(model(label, q, seed, items=scatter[seed]) for seed, q in enumerate(NEAR))

    small, large = ({label: scored(label, n) for label in ("baseline", "bf16")} for n in (30, 30_000))
    assert verdict(small, GOAL).label is None
    assert verdict(small, GOAL).sentence.endswith("More seeds would not decide it; a larger test split may.")
    assert verdict(large, GOAL).label == "bf16"


def test_a_collapsed_model_keeps_nothing():
    chance = {"scores": {"bleu_4_chance": 0.15}}
    untrained = {label: (model(label, 0.14, **chance),) for label in ("baseline", "bf16")}
    longer = "Not decided, train the baseline longer: its quality 0.1400 is not above chance (0.1500)."
    assert verdict(untrained, GOAL).sentence == longer
    assert verdict(untrained, Objective(keep=0)).label == "bf16", "any quality will do"
    collapsed = {**runs(baseline=NEAR), "bf16": (model("bf16", 0.17, collapsed=True),)}
    found = verdict(collapsed, GOAL)
    assert (found.label, found.standings[0].shown) == ("baseline", "it gives the same answer to every input")


def with_loss(label, loss):
    """Returns the measurement of a training that ends with `loss`."""
    speed = Throughput(SPEEDS[label], 1.0, 50, 9.0)
    return Measurement(speed, -loss, 400, curve=(Evaluation(400, 9.0, -loss),))


def test_without_test_scores_the_final_quality_counts():
    def trained(label, loss):
        return tuple(model(label, None, seed, training=with_loss(label, loss)) for seed in range(2))

    models = {"baseline": trained("baseline", 2.0), "bf16": trained("bf16", 3.0)}
    found = verdict(models, Objective(minimize="val_loss"))
    assert found.label == "baseline"
    assert "keeps 99% of the baseline's improvement in val_loss at the end of the training" in found.sentence
    assert "val_loss 3.0000 instead of 2.0000" in found.sentence


def test_a_loss_of_the_validation_split_is_judged_by_that_of_the_test_split():
    def scored(label, *losses):
        training = with_loss(label, 2.0)
        scores = [{"loss": loss} for loss in losses]
        return tuple(model(label, 0.16, n, training=training, scores=of) for n, of in enumerate(scores))

    models = {
        "baseline": scored("baseline", 2.000, 2.001, 1.999),
        "bf16": scored("bf16", 2.001, 2.000, 1.999),
        "fp16": scored("fp16", 2.500, 2.501, 2.499),
    }
    found = verdict(models, Objective(minimize="val_loss", keep=0.95))
    assert found.label == "bf16"
    assert (
        "keeps 95% of the baseline's improvement in loss on the test split is bf16, 2.00x" in found.sentence
    )
    assert (
        "Faster, but not good enough: fp16, 2.50x as fast as the baseline, loss 2.5000 instead of"
        in found.sentence
    )


FAILED = {"outcome": Outcome(Status.FAILED, Failure.OOM, "too large"), "training": Measurement()}


def test_incomplete_trainings_are_not_judged():
    found = verdict({**runs(baseline=NEAR, bf16=NEAR), "fp16": (model("fp16", None, **FAILED),)}, GOAL)
    assert [one.label for one in found.standings] == ["bf16", "baseline"]
    assert found.sentence.endswith("Not trained to the end: fp16.")
    without = verdict({**runs(bf16=NEAR), "baseline": (model("baseline", None, **FAILED),)}, GOAL)
    assert without.sentence == "Not decided: the baseline's model was not trained to its end."


def test_unscored_models_are_not_judged_if_others_are_scored():
    models = runs(baseline=NEAR, bf16=NEAR, fp16=NEAR)
    models["bf16"] = (*models["bf16"][:3], model("bf16", None, 3))
    models["fp16"] = tuple(model("fp16", None, seed) for seed in range(4))
    found = verdict(models, GOAL)
    assert [(one.label, one.seeds) for one in found.standings] == [("bf16", 3), ("baseline", 4)]
    assert (found.label, " on the test split is bf16, " in found.sentence) == ("bf16", True)
    assert found.sentence.endswith("3 seeds against 4. Could not be scored: fp16.")
    unscored = {**models, "baseline": (model("baseline", None),)}
    assert verdict(unscored, GOAL).sentence == "Not decided: the baseline's model could not be scored."


def test_labels_without_a_judgement_have_not_lost():
    unjudged = {"fp16": (model("fp16", None),), "fp32": (model("fp32", None, **FAILED),)}
    reasons = ". Could not be scored: fp16. Not trained to the end: fp32."
    alone = verdict({**runs(baseline=NEAR), **unjudged}, GOAL)
    assert alone.label is None
    assert alone.sentence == f"Not decided: only the baseline could be judged{reasons}"
    found = verdict({**runs(baseline=NEAR, bf16=LOW), **unjudged}, GOAL)
    assert found.label == "baseline"
    stays = "The baseline stays: no faster precision that could be judged keeps 95% of the baseline's "
    assert found.sentence.startswith(stays)
    assert found.sentence.endswith(reasons)


@pytest.mark.parametrize("models", [{}, runs(baseline=NEAR)])
def test_a_baseline_alone_leaves_nothing_to_decide(models):
    assert verdict(models, GOAL) is None


def test_equal_models_are_rarely_called_worse_and_worse_ones_rarely_kept():
    """The error rate is 5% on either side at the border, and far lower away from it."""
    rng = random.Random(1)

    def drawn(mean):
        return tuple(rng.gauss(mean, 0.003) for _ in range(4))

    worse = [verdict(runs(baseline=drawn(0.16), bf16=drawn(0.145)), GOAL).label for _ in range(200)]
    equal = [verdict(runs(baseline=drawn(0.16), bf16=drawn(0.16)), GOAL).label for _ in range(200)]
    assert worse.count("bf16") <= 2
    assert equal.count("baseline") <= 2
    assert equal.count("bf16") > 120
