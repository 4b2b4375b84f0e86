"""A run can be stopped anywhere and resumed with the same result; one that cannot be resumed says why."""

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from r2gen import checkpoint, train
from r2gen.errors import BadImageError, InputError, StorageError
from r2gen.train import fit
from tests.r2gen.faults import change_models, cut_short
from tests.r2gen.same import same_state, untimed

pytestmark = pytest.mark.usefixtures("without_java")

STEP_KEYS = {
    *("samples", "epoch", "step", "train_loss", "learning_rate", "grad_norm", "skipped_samples"),
    *("bad_steps", "data_s", "transfer_s", "forward_s", "backward_s", "optimizer_s"),
}
SCORES = {
    *("bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider"),
    *("full_bleu_1", "full_bleu_2", "full_bleu_3", "full_bleu_4"),
}
EVALUATION_KEYS = {
    *("samples", "epoch", "val_studies", "val_loss"),
    *SCORES,
    *(f"{name}_chance" for name in SCORES),
    *("distinct_reports", "distinct_references", "bleu_4_shuffled", "collapsed", "bleu_4_items"),
}
Records = list[dict[str, Any]]


def _untimed(records: Iterator[Mapping[str, Any]] | Records) -> Records:
    return list(map(untimed, records))


def _new(records: Iterator[Mapping[str, Any]], known: Records) -> Iterator[Mapping[str, Any]]:
    """Drops an evaluation that was yielded before: a resumed run repeats its last one."""
    return (r for r in records if not ("bleu_4" in r and known and known[-1] == dict(r)))


def _steps(records: Records) -> Records:
    return [record for record in records if "train_loss" in record]


def _evaluated_at(records: Records) -> list[int]:
    return [record["samples"] for record in records if "bleu_4" in record]


def test_records_have_the_progress_and_the_scores(tiny: dict[str, Any], tmp_path: Path) -> None:
    records = list(fit(tiny, tmp_path))

    steps = _steps(records)
    assert [set(step) for step in steps] == [STEP_KEYS] * 6
    assert [step["samples"] for step in steps] == [4, 8, 10, 14, 18, 20]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert [step["epoch"] for step in steps] == [1, 1, 1, 2, 2, 2]
    assert all(step["train_loss"] > 0 and step["grad_norm"] > 0 for step in steps)
    assert all(step["skipped_samples"] == 0 and step["learning_rate"] == 1e-3 for step in steps)
    assert all(step["bad_steps"] == 0 for step in steps)
    evaluations = [record for record in records if record not in steps]
    assert [set(record) for record in evaluations] == [EVALUATION_KEYS] * 2
    assert [(record["samples"], record["epoch"], record["val_studies"]) for record in evaluations] == [
        (10, 1, 2),
        (20, 2, 2),
    ]


@pytest.mark.parametrize(
    ("cut", "golden"),
    [("run_on", [3.3284073, 3.1865234, 3.1697013]), ("end", [3.3453586, 3.2019539, 3.1596775])],
)
def test_golden_numbers_of_the_first_steps(
    tiny: dict[str, Any], tmp_path: Path, cut: str, golden: list[float]
) -> None:
    """Must only be updated if the computation of a step is changed on purpose."""
    plain = {**tiny, "dropout": 0, "drop_prob_lm": 0, "cut_reports": cut}

    losses = [step["train_loss"] for step in islice(fit(plain, tmp_path), 3)]

    assert losses == pytest.approx(golden, abs=1e-4)


def test_training_lowers_the_loss(tiny: dict[str, Any], tmp_path: Path) -> None:
    steps = _steps(list(fit({**tiny, "epochs": 12}, tmp_path)))

    assert steps[-1]["train_loss"] < 0.8 * steps[0]["train_loss"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], tuple[Path, Records]]:
    """Returns the directory and records of an uninterrupted run, cached by settings."""
    done: dict[str, tuple[Path, Records]] = {}

    def run(config: dict[str, Any]) -> tuple[Path, Records]:
        key = repr(config)
        if key not in done:
            place = tmp_path_factory.mktemp("straight")
            done[key] = place, _untimed(fit(config, place))
        return done[key]

    return run


@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_is_killed_at_any_moment_continues_as_if_it_were_not(
    tiny: dict[str, Any], tmp_path: Path, workers: int
) -> None:
    """Each kill comes within half a second after the first record: those within imports prove nothing."""
    config, chance = tmp_path / "config.yaml", random.Random(workers)
    settings = {**tiny, "num_workers": workers, "epochs": 30, "checkpoint_every_steps": 1}
    config.write_text(yaml.safe_dump(settings))

    def start(name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "r2gen", "train", "--config", config, "--workdir", tmp_path / name]
        return subprocess.Popen(
            [*command, "--records", tmp_path / f"{name}.jsonl"], stdout=subprocess.DEVNULL
        )

    assert start("whole").wait(300) == 0
    for _ in range(6):
        run, before = start("killed"), _written(tmp_path / "killed.jsonl")
        while run.poll() is None and _written(tmp_path / "killed.jsonl") == before:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.5))
        run.kill()
        run.wait()
    assert start("killed").wait(300) == 0
    whole, killed = (_last_of_each(tmp_path / f"{name}.jsonl") for name in ("whole", "killed"))
    assert whole == killed
    for name in ("last.pt", "best.pt"):
        assert same_state(*(checkpoint.load(tmp_path / run / name) for run in ("whole", "killed")))


def _written(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _last_of_each(file: Path) -> dict[tuple[int, bool], dict[str, Any]]:
    """Returns the last record of every step and evaluation, without times; a kill may cut a line."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):
            record = untimed(json.loads(line))
            record.pop("at")
            found[record["samples"], "train_loss" in record] = record
    return found


@pytest.mark.parametrize(
    ("stops", "workers"),
    [((1,), 0), ((2, 5), 0), ((2, 5), 2), ((3,), 0), ((4,), 0), ((1, 1, 1, 1, 1, 1, 1), 0)],
)
def test_a_stopped_run_resumes_bit_identically(
    tiny: dict[str, Any],
    straight: Callable[[dict[str, Any]], tuple[Path, Records]],
    tmp_path: Path,
    stops: tuple[int, ...],
    workers: int,
) -> None:
    """Stopped within an epoch, at its end before the evaluation, after it, and after every record."""
    config = {**tiny, "accumulation_steps": 2, "micro_batch_size": 3, "num_workers": workers, "epochs": 3}
    place, expected = straight(config)

    in_parts: Records = []
    for count in stops:
        records = fit(config, tmp_path / "parts")
        in_parts += _untimed(islice(_new(records, in_parts), count))
        records.close()
    in_parts += _untimed(_new(fit(config, tmp_path / "parts"), in_parts))

    assert in_parts == expected
    for name in ("last.pt", "best.pt"):
        states = [checkpoint.load(where / name) for where in (place, tmp_path / "parts")]
        assert same_state(*states)


@pytest.mark.parametrize(("every", "expected"), [(None, [10, 20]), (8, [8, 18, 20]), (4, [4, 8, 14, 18, 20])])
def test_evaluations_come_when_they_are_due(
    tiny: dict[str, Any], tmp_path: Path, every: int | None, expected: list[int]
) -> None:
    assert _evaluated_at(list(fit({**tiny, "eval_every_samples": every}, tmp_path))) == expected


@pytest.mark.parametrize(
    ("evaluated", "kept"),
    [
        ([(0.2, False), (0.3, False), (0.1, False)], 2),
        ([(0.2, True), (0.3, True), (0.1, True)], 2),
        ([(0.2, False), (0.4, True), (0.3, True)], 1),
        ([(0.4, True), (0.2, False), (0.5, True)], 2),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_the_best_checkpoint_is_collapsed_only_if_all_are(  # noqa: PLR0917 - fixtures
    tiny: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    evaluated: list[tuple[float, bool]],
    kept: int,
    stopped: bool,
) -> None:
    """In one run, and in runs that each stop after an evaluation and are resumed."""
    scores = ({"bleu_4": score, "collapsed": collapsed} for score, collapsed in evaluated)
    coming = chain(scores, repeat({"bleu_4": 1.0, "collapsed": False}))
    monkeypatch.setattr(train, "evaluate", lambda *_: dict(next(coming)))
    for epochs in (1, 2, 3) if stopped else (3,):
        list(fit({**tiny, "epochs": epochs}, tmp_path))

    best = checkpoint.load(tmp_path / "best.pt")
    assert best["best"] == evaluated[kept - 1][0]
    after = tmp_path / "after"
    list(fit({**tiny, "epochs": kept}, after))
    assert same_state(best["model"], checkpoint.load(after / "last.pt")["model"])


def test_a_finished_run_only_repeats_its_last_evaluation(tiny: dict[str, Any], tmp_path: Path) -> None:
    last = list(fit(tiny, tmp_path))[-1]
    before = (tmp_path / "last.pt").stat().st_mtime_ns

    assert list(fit(tiny, tmp_path)) == [last]
    assert (tmp_path / "last.pt").stat().st_mtime_ns == before


def test_a_run_resumes_with_more_epochs(tiny: dict[str, Any], tmp_path: Path) -> None:
    short = _untimed(fit(tiny, tmp_path / "parts"))
    short += _untimed(_new(fit({**tiny, "epochs": 3}, tmp_path / "parts"), short))

    assert short == _untimed(fit({**tiny, "epochs": 3}, tmp_path / "straight"))


def test_closing_before_the_first_step_writes_nothing(tiny: dict[str, Any], tmp_path: Path) -> None:
    fit(tiny, tmp_path).close()

    assert list(tmp_path.iterdir()) == []


def test_the_checkpoint_is_written_before_the_evaluation(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation takes minutes, and a run killed in it writes no checkpoint afterwards."""
    seen = []

    def look(extractor: nn.Module, _: object) -> None:
        if not extractor.training:
            seen.append(checkpoint.load(tmp_path / "last.pt")["samples"])

    change_models(monkeypatch, lambda model: model.visual_extractor.register_forward_pre_hook(look))
    evaluated = _evaluated_at(list(fit(tiny, tmp_path)))
    assert sorted(set(seen)) == evaluated == [10, 20]


def test_checkpoints_are_written_between_evaluations_if_configured(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    records = fit({**tiny, "checkpoint_every_steps": 2}, tmp_path)

    next(records)
    next(records)
    assert not (tmp_path / "last.pt").exists()
    next(records)
    assert checkpoint.load(tmp_path / "last.pt")["step"] == 2
    records.close()


def test_an_evaluation_whose_checkpoint_could_not_be_written_is_made_again(
    tiny: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "best.pt").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        list(fit(tiny, tmp_path))
    assert checkpoint.load(tmp_path / "last.pt")["samples"] == 10

    (tmp_path / "best.pt").rmdir()
    assert _evaluated_at(list(fit(tiny, tmp_path))) == [10, 20]
    assert (tmp_path / "best.pt").exists()


@pytest.mark.parametrize(
    "change",
    [
        *({"learning_rate": 0.1}, {"micro_batch_size": 2}, {"d_ff": 64}, {"seed": 1}, {"precision": "bf16"}),
        {"random_flip": False},
    ],
    ids=str,
)
def test_a_run_does_not_resume_with_other_settings(
    tiny: dict[str, Any], tmp_path: Path, change: dict[str, Any]
) -> None:
    records = fit(tiny, tmp_path)
    next(records)
    records.close()

    ((name, value),) = change.items()
    with pytest.raises(
        InputError, match=rf"last\.pt: comes from a run with other settings: {name} .*{value}"
    ):
        next(fit({**tiny, **change}, tmp_path))


def test_a_run_with_cuda_graphs_resumes_without_them(tiny: dict[str, Any], tmp_path: Path) -> None:
    records = fit(tiny, tmp_path)
    next(records)
    records.close()
    state = torch.load(tmp_path / "last.pt", weights_only=False)
    state["config"]["compile"] = "cuda-graphs"
    torch.save(state, tmp_path / "last.pt")
    assert next(fit(tiny, tmp_path))["samples"] > state["samples"]


def test_a_cosine_does_not_resume_with_another_end(tiny: dict[str, Any], tmp_path: Path) -> None:
    config = {**tiny, "schedule": "cosine"}
    records = fit(config, tmp_path)
    next(records)
    records.close()
    with pytest.raises(InputError, match="other settings: epochs 2, now 3"):
        next(fit({**config, "epochs": 3}, tmp_path))


def test_the_learning_rate_follows_the_schedule_over_a_stop(tiny: dict[str, Any], tmp_path: Path) -> None:
    config = {**tiny, "schedule": "cosine", "warmup_samples": 8, "learning_rate": 1.0}
    rates = []
    for count in (2, 9):
        records = fit(config, tmp_path)
        rates += [r["learning_rate"] for r in islice(records, count) if "learning_rate" in r]
        records.close()
    cosine = [(1 + math.cos(math.pi * (samples - 8) / 12)) / 2 for samples in (8, 10, 14, 18)]
    assert rates == pytest.approx([0.5, 1.0, *cosine])


def test_a_checkpoint_from_before_schedules_resumes(tiny: dict[str, Any], tmp_path: Path) -> None:
    """It has the state of PyTorch's scheduler, and does not record studies left out of the annotation."""
    config = {**tiny, "lr_step_epochs": 1}
    expected = _untimed(fit(config, tmp_path / "straight"))
    records = fit(config, tmp_path / "parts")
    done = _untimed(islice(records, 2))
    records.close()
    last = tmp_path / "parts" / "last.pt"
    state = checkpoint.load(last) | {"scheduler": {"last_epoch": 0, "_step_count": 1, "gamma": 0.1}}
    del state["left_out"]
    for name in ("schedule", "warmup_samples", "halve_on_oom", "loader_timeout_s"):
        del state["config"][name]
    for group in state["optimizer"]["param_groups"]:
        group["initial_lr"] = group["lr"]
    checkpoint.save(last, state)

    assert done + _untimed(fit(config, tmp_path / "parts")) == expected


def test_a_run_does_not_resume_with_other_reports(
    tiny: dict[str, Any], own_data: Path, tmp_path: Path
) -> None:
    records = fit(tiny, tmp_path / "run")
    next(records)
    records.close()
    file = own_data / "annotation.json"
    file.write_text(file.read_text().replace("pneumothorax", "hydrothorax"))

    with pytest.raises(InputError, match=r"has \d+ words, .* first difference is 'in', now 'hydrothorax'"):
        next(fit({**tiny, "data": str(own_data)}, tmp_path / "run"))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_ends_the_run_at_its_last_good_step(
    tiny: dict[str, Any], own_data: Path, tmp_path: Path, workers: int
) -> None:
    _break(own_data, ["train-00004"])
    config = {**tiny, "data": str(own_data), "num_workers": workers, "micro_batch_size": 1}
    done: Records = []
    with pytest.raises(BadImageError, match=r"study 'train-00004': image .*1\.png cannot be decoded"):
        done.extend(fit(config, tmp_path / "run"))

    assert checkpoint.load(tmp_path / "run" / "last.pt")["step"] == len(done)
    assert 0 < len(done) < 10
    skipping = {**config, "skip_bad_samples": True, "epochs": 1}
    records = list(fit(skipping, tmp_path / "run"))
    assert len(done) + len(_steps(records)) == 9
    assert _steps(records)[-1]["skipped_samples"] == 1


def test_left_out_studies_are_counted(tiny: dict[str, Any], own_data: Path, tmp_path: Path) -> None:
    _break(own_data, ["train-00004", "train-00007"])
    (own_data / "images" / "train-00001" / "0.png").unlink()
    config = {**tiny, "data": str(own_data), "skip_bad_samples": True, "epochs": 1}

    last = _steps(list(fit(config, tmp_path / "run")))[-1]

    assert last["skipped_samples"] == 3
    assert last["samples"] == 7


def test_a_study_that_went_missing_is_counted_with_those_left_out_before(
    tiny: dict[str, Any], own_data: Path, tmp_path: Path
) -> None:
    _break(own_data, ["train-00004"])
    config = {**tiny, "data": str(own_data), "skip_bad_samples": True}
    first = _steps(list(fit({**config, "epochs": 1}, tmp_path / "run")))
    (own_data / "images" / "val-00001" / "0.png").unlink()

    second = _steps(list(fit(config, tmp_path / "run")))

    counts = [steps[-1]["skipped_samples"] for steps in (first, second)]
    assert counts == [1, 3]  # the broken one, once per epoch


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_split_without_one_good_image_is_refused(
    tiny: dict[str, Any], own_data: Path, tmp_path: Path, split: str
) -> None:
    _break(own_data, [path.name for path in (own_data / "images").glob(f"{split}-*")])

    with pytest.raises(InputError, match="not one image of the"):
        list(fit({**tiny, "data": str(own_data), "skip_bad_samples": True}, tmp_path / "run"))


def _break(data: Path, studies: list[str]) -> None:
    for study in studies:
        cut_short(data / "images" / study / "1.png")


@pytest.mark.parametrize(
    "change", [{"precision": "bf16"}, {"channels_last": False}, {"activation_checkpointing": True}], ids=str
)
def test_speed_settings_hardly_change_the_loss(
    tiny: dict[str, Any], tmp_path: Path, change: dict[str, Any]
) -> None:
    plain = {**tiny, "epochs": 1, "dropout": 0}
    losses = [
        [step["train_loss"] for step in _steps(list(fit(config, tmp_path / name)))]
        for name, config in (("plain", plain), ("changed", {**plain, **change}))
    ]

    assert losses[1] == pytest.approx(losses[0], rel=0.03)


def test_channels_last_is_for_the_visual_extractor(tiny: dict[str, Any], tmp_path: Path) -> None:
    config = train.parse({**tiny, "channels_last": True})
    model = train._Trainer(config, tmp_path, train.OptionalMeteor()).model

    weight = model.visual_extractor.get_parameter("model.4.0.conv2.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()


def test_it_continues_without_meteor_when_java_dies(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")

    records = list(fit(tiny, tmp_path / "run"))

    assert _evaluated_at(records) == [10, 20]
    assert all("meteor" not in record for record in records)
    said = capsys.readouterr().err
    assert said.count("METEOR is left out") == 1
    assert "ended with status 3: no memory" in said
