"""Reports are generated as configured, and compared with the published protocol's references."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from r2gen import evaluate
from r2gen.annotation import Study, load_annotation
from r2gen.config import Config
from r2gen.data import Key, ReportDataset, normalise
from r2gen.evaluate import Scorer, Written, build, scores, write_reports
from r2gen.metrics import OptionalMeteor
from r2gen.model import EncoderDecoder, R2Gen, loss_sum
from r2gen.packing import lengths
from r2gen.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("without_java")
Make = Callable[..., Config]


def _ready(config: Config) -> tuple[R2Gen, Tokenizer, dict[str, tuple[Study, ...]]]:
    splits = dict(load_annotation(config).splits)
    counted = Tokenizer.from_reports((s.report for s in splits["train"]), config.dataset, 1)
    return *build(config, counted.vocabulary), splits


def _written(config: Config, studies: int | None = None) -> list[Written]:
    model, tokenizer, splits = _ready(config)
    return write_reports(model, splits["val"], tokenizer, config, studies)


def test_every_study_gets_a_report_in_order(make_config: Make) -> None:
    config = make_config(eval_batch_size=3)
    written = _written(config)
    assert [w.study for w in written] == list(load_annotation(config).splits["val"])
    assert [w.report for w in _written(config, 2)] == [w.report for w in written[:2]]
    alone = _written(make_config(eval_batch_size=1))
    assert [replace(w, nats=0.0) for w in alone] == [replace(w, nats=0.0) for w in written]
    assert [w.nats for w in alone] == pytest.approx([w.nats for w in written], rel=1e-5)


def test_the_model_is_left_in_the_mode_that_it_was_in(make_config: Make) -> None:
    config = make_config()
    model, tokenizer, splits = _ready(config)
    for mode in (True, False):
        model.train(mode)
        write_reports(model, splits["val"], tokenizer, config, 1)
        assert model.training is mode


@pytest.mark.parametrize("cut", ["end", "run_on"])
def test_the_reference_is_the_published_one_whatever_training_sees(make_config: Make, cut: str) -> None:
    """The first `max_seq_length` ids, including the begin token."""
    for w in _written(make_config(max_seq_length=8, cut_reports=cut)):
        assert w.reference == " ".join(w.full_reference.split()[:7])


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"beam_size": 3}, ("search", 3, False)),
        ({"beam_size": 3, "block_trigrams": "on"}, ("search", 3, True)),
        ({"beam_size": 3, "compat": "original"}, ("search", 3, False)),
        ({"beam_size": 1}, ("search", 1, False)),
        ({"beam_size": 1, "block_trigrams": "on"}, ("search", 1, True)),
        ({"beam_size": 1, "block_trigrams": "greedy_only"}, ("search", 1, True)),
        ({"beam_size": 1, "compat": "original"}, ("draw", 1, True)),
    ],
    ids=str,
)
def test_the_configuration_decides_how_words_are_chosen(
    make_config: Make,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    how: tuple[str, int, bool],
) -> None:
    asked: list[tuple[Any, ...]] = []

    def ask(name: str, decoder: EncoderDecoder, encoded: torch.Tensor, **given: Any) -> torch.Tensor:
        assert not decoder.training
        asked.append((name, given.get("beam_size", 1), given["block_trigrams"]))
        return torch.zeros(len(encoded), given["max_length"], dtype=torch.long)

    for name in ("search", "draw"):
        monkeypatch.setattr(evaluate, name, partial(ask, name))
    _written(make_config(**changes), 1)
    assert asked == [how]


def _evaluated(config: Config) -> dict[str, Any]:
    model, tokenizer, splits = _ready(config)
    with OptionalMeteor() as meteor:
        scorer = Scorer(splits["train"], tokenizer, config, meteor)
        return evaluate.evaluate(model, splits, tokenizer, config, scorer)


@pytest.mark.parametrize(
    "changes", [{}, {"max_seq_length": 8}, {"max_seq_length": 8, "cut_reports": "run_on"}]
)
def test_the_loss_is_on_the_training_targets_without_dropout(
    make_config: Make, changes: dict[str, Any]
) -> None:
    config = make_config(eval_studies=None, eval_batch_size=3, dropout=0.5, **changes)
    model, tokenizer, splits = _ready(config)
    dataset = ReportDataset(splits["val"], tokenizer, config, training=False)
    batch = dataset.__getitems__([Key(0, study) for study in range(4)])
    with torch.no_grad():
        summed = loss_sum(model.eval()(normalise(batch.images), batch.targets), batch.targets)

    found = _evaluated(config)

    assert found["val_loss"] == pytest.approx(summed.item() / sum(lengths(batch.targets)), rel=1e-5)


def test_each_score_has_its_chance_and_every_study_its_number(make_config: Make) -> None:
    found = _evaluated(make_config(eval_studies=None))
    names = {name for name in found if f"{name}_chance" in found}
    assert names == {*(f"{full}bleu_{n}" for full in ("", "full_") for n in range(1, 5)), "rouge_l", "cider"}
    assert all(found[f"{name}_chance"] > 0 for name in names)
    assert len(found["bleu_4_items"]) == found["val_studies"] == 4
    assert found["collapsed"] is True  # the model is untrained


def test_the_test_split_is_scored_if_configured(make_config: Make) -> None:
    plain, tested = _evaluated(make_config()), _evaluated(make_config(test_scores=True))
    assert not any(name.startswith("test_") for name in plain)
    assert {k: v for k, v in tested.items() if not k.startswith("test_")} == plain
    names = {name.removeprefix("val_") for name in plain if name != "bleu_4_items"}
    assert tested.keys() - plain.keys() == {f"test_{name}" for name in names}
    assert (tested["val_studies"], tested["test_studies"]) == (2, 3)


def test_a_cut_reference_scores_higher_than_the_whole_one() -> None:
    study = Study("1", "", ())
    words = "the heart is normal in size .", "the heart is normal in size . the lungs are clear ."
    found = scores([Written(study, words[0], *words, nats=1.0, tokens=7)], OptionalMeteor())
    assert found["bleu_4"] == pytest.approx(1)
    assert found["full_bleu_4"] < 0.6


def test_meteor_is_silently_left_out_if_not_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with OptionalMeteor(wanted=False) as meteor:
        assert meteor.score(["the heart is normal ."], ["the heart is normal ."]) == {}
    assert capfd.readouterr() == ("", "")


def test_a_seed_builds_the_same_model_and_leaves_the_random_numbers_alone(make_config: Make) -> None:
    def weights() -> Sequence[torch.Tensor]:
        return list(build(make_config(), ["<unk>", "heart"])[0].state_dict().values())

    torch.manual_seed(5)
    one, drawn = weights(), torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), drawn)
    assert all(torch.equal(a, b) for a, b in zip(one, weights(), strict=True))
