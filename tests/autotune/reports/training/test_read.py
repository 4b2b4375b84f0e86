"""Reports read from training directories: ended, stopped, running, and corrupt."""

import json
from dataclasses import replace

import pytest

from autotune.core.errors import InputError
from autotune.core.measurement import Measurement
from autotune.core.metric import Metric
from autotune.core.trial import Failure, Outcome, Status
from autotune.judging.accounts.promise import PromiseAnswer
from autotune.judging.measurement.estimates import Figure
from autotune.reports import as_json, markdown, page
from autotune.reports.training import plots, read, wording
from autotune.storage import identity, lock
from autotune.storage.records import read_records
from autotune.training import events, plan
from autotune.training.events import Kind, TrainingEvent
from autotune.trials.thinning import Thinner

from . import handmade


@pytest.fixture
def ended(tmp_path):
    return handmade.write(tmp_path / "t")


@pytest.fixture
def killed(tmp_path):
    return handmade.write(tmp_path / "t", ended=False)


def test_a_training_that_has_ended(ended):
    found = read.read(ended.root)
    assert (found.state, found.outcome.status) == ("ended", Status.COMPLETED)
    assert found.promised.answer is PromiseAnswer.HELD
    held = {one.what for one in found.promised.kept if one.answer is PromiseAnswer.HELD}
    assert held == {"speed", "quality", "memory"}
    assert (found.attempts, found.measured.samples, found.planned) == (2, 2000, 2000)
    assert 190 <= found.repeated <= 200
    assert found.measured.memory_limit_bytes == 16 * 2**30  # only its last process knew it
    assert found.settings["micro_batch_size"] == 4
    assert [event.kind for event in found.events] == ["begun", "retried", "continued", "ended"]
    assert found.events[1].seconds == found.events[2].seconds  # a day passed between them


def test_a_killed_training_is_compared_with_its_promise(killed):
    found = read.read(killed.root)
    assert (found.state, found.outcome) == ("interrupted", None)
    assert found.promised.answer is PromiseAnswer.HELD
    assert found.measured.samples == 1000


def insert(file, key, field):
    """Inserts a field before `key` in every line."""
    file.write_text(file.read_text().replace(key, f"{field}, {key}"))


def test_memory_is_compared_with_its_promise_without_subprocesses(killed):
    insert(killed.records_file, '"memory_peak_bytes"', '"memory_children_bytes": 1073741824')
    found = read.read(killed.root)
    assert found.measured.peak_memory_bytes == 5 * 2**30
    assert found.promised.answer is PromiseAnswer.HELD


def test_a_speed_promised_with_evaluations_is_compared_with_them(killed):
    """A step takes 0.5 s; after every 25 steps an evaluation takes 4 s."""
    known = plan.read(killed)
    metric = Metric("bleu_4", counts_evaluations=True, samples_per_evaluation=handmade.EVERY)
    promise = replace(known.promise, throughput=Figure(12.1, 12.0, 12.2))
    wall = replace(known, metric=metric, promise=promise)
    plan.write(killed, wall)
    found = read.read(killed.root)
    assert {one.what: one.answer for one in found.promised.kept}["speed"] is PromiseAnswer.HELD
    assert found.measured.throughput.samples_per_s == pytest.approx(handmade.EVERY / 16.5)
    assert dict(wording.figures(found))["samples/s, evaluations included"].startswith("12.1")
    assert "promised" not in plots.by_section(found)["speed"][0].label  # it excludes evaluations
    plan.write(killed, replace(wall, metric=known.metric))
    kept = read.read(killed.root).promised.kept
    assert next(one.text for one in kept if one.what == "speed").endswith("32% faster (12.1 promised)")


def test_steps_without_a_record_are_counted(killed):
    """A step takes 0.5 s, and an evaluation 4 s."""
    mark, *records = read_records(killed)
    thin = Thinner("bleu_4", 200.0)
    kept = [mark, *thin(records), *thin.rest()]
    assert len(kept) < len(records) / 2
    killed.records_file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    found = read.read(killed.root)
    assert found.measured.throughput.steps_per_s == pytest.approx(2.0)
    assert dict(wording.figures(found))["optimizer steps/s, evaluations left out"] == "2.0"


def test_sizes_of_model_and_checkpoints_are_shown(killed):
    before = dict(wording.figures(read.read(killed.root)))
    assert not {"trained parameters", "size of work/, with its checkpoints"} & before.keys()
    insert(killed.records_file, '"grad_norm"', '"trained_parameters": 78463132')
    killed.work.mkdir()
    (killed.work / "last.pt").write_bytes(bytes(3 * 2**20))
    found = dict(wording.figures(read.read(killed.root)))
    assert found["trained parameters"] == "78,463,132"
    assert found["size of work/, with its checkpoints"] == "3 MiB"


def test_growth_of_memory_is_shown(killed):
    """The host's memory grows by 1 MiB per sample."""
    lines = handmade.telemetry(handmade.BEGUN, range(0, 1000, 16))
    killed.telemetry_file.write_text(
        "".join(json.dumps({**line, "at": handmade.BEGUN + n + 1}) + "\n" for n, line in enumerate(lines))
    )
    found = read.read(killed.root)
    assert found.growth[0].slope.per_sample == pytest.approx(2**20)
    assert dict(wording.figures(found))["use of the host's memory"].startswith("grows by 1000 MiB (")
    assert dict(wording.figures(found))["use of the GPU's memory"] == "does not certainly grow"


def test_a_training_resumed_on_another_device_is_not_compared_with_the_old_speed(killed):
    plan.write(killed, replace(plan.read(killed), device="another GPU"))
    found = {one.what: one for one in read.read(killed.root).promised.kept}
    assert found["speed"].answer is PromiseAnswer.UNDECIDED
    assert found["speed"].text.endswith("promise measured on some GPU, trained on another GPU")


def test_other_programs_use_is_averaged_over_all_attempts(ended):
    first = handmade.telemetry(handmade.BEGUN, range(0, 1000, 160))
    for line in first:
        line["others_cpu_percent"] = 400.0
    second = handmade.telemetry(handmade.AGAIN, range(800, 2000, 160))
    ended.telemetry_file.write_text("".join(json.dumps(line) + "\n" for line in [*first, *second]))
    assert "other programs used" in markdown.render(read.read(ended.root))


def test_other_programs_use_is_shown_while_it_runs(killed):
    assert "other programs used" not in markdown.render(read.read(killed.root))
    text = killed.telemetry_file.read_text()
    killed.telemetry_file.write_text(text.replace('"others_cpu_percent": 12', '"others_cpu_percent": 200'))
    assert "- other programs used 50% of the CPUs" in markdown.render(read.read(killed.root))


def test_a_running_training_is_not_disturbed(killed):
    before = {file: file.read_bytes() for file in killed.root.rglob("*") if file.is_file()}
    with lock.hold_file(killed.lock_file, "training"):
        assert read.read(killed.root).state == "running"
        assert read.read(killed.root, is_over=True).state == "interrupted"
    assert {file: file.read_bytes() for file in before} == before


def test_the_promise_of_a_failed_training_is_undecided(ended):
    outcome, measured = identity.read_verdict(ended)
    identity.write_verdict(ended, Outcome(Status.FAILED, Failure.DIVERGED, "the loss is nan"), measured)
    found = read.read(ended.root)
    assert {one.answer for one in found.promised.kept} == {PromiseAnswer.HELD}
    assert (outcome.status, found.promised.answer) == (Status.COMPLETED, PromiseAnswer.UNDECIDED)


def test_a_training_killed_after_its_completion_has_ended(ended):
    lines = ended.events_file.read_text().splitlines(keepends=True)
    ended.events_file.write_text("".join(lines[:-1]))  # the verdict is written before the event
    found = read.read(ended.root)
    assert (found.state, found.outcome.status) == ("ended", Status.COMPLETED)
    assert found.events[-1].kind is Kind.CONTINUED


def test_a_resumed_attempts_verdict_is_not_the_trainings(ended):
    failed = Outcome(Status.FAILED, Failure.ERROR, "CUDA error")
    identity.write_verdict(ended, failed, read.read(ended.root).measured)
    assert read.read(ended.root).outcome == failed
    events.write(ended.events_file, TrainingEvent(handmade.AGAIN + 200, 2000, Kind.CONTINUED, "training"))
    assert read.read(ended.root).outcome is None


def test_an_earlier_attempts_verdict_is_not_an_abandoned_trainings(ended):
    """A killed attempt leaves no verdict."""
    failed = Outcome(Status.FAILED, Failure.ERROR, "CUDA error")
    identity.write_verdict(ended, failed, Measurement(samples=700))
    assert read.read(ended.root).outcome is None


def test_a_training_without_records_says_so(killed):
    for file in (killed.records_file, killed.telemetry_file):
        file.unlink()
    found = read.read(killed.root)
    assert (found.seconds, found.attempts, found.begun, found.curves.speed) == (0.0, 0, None, ())
    assert [one.found for one in found.promised.kept] == [None] * 3
    assert found.promised.answer is PromiseAnswer.UNDECIDED
    assert "There is nothing yet to compare with trial 11 of session iu" in markdown.render(found)
    assert "No speed yet" in page.render(found)


def test_another_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not the directory of a training"):
        read.read(tmp_path)


def test_json_has_every_figure_unrounded(ended):
    found = json.loads(as_json.render(read.read(ended.root)))
    assert (found["format"], found["state"], found["outcome"]["status"]) == (1, "ended", "completed")
    assert found["promised"]["kept"][0] == {
        "what": "speed",
        "answer": "held",
        "text": "16.0 samples/s, as promised (16.0 promised)",
        "promised": {"value": 16.0, "low": 15.6, "high": 16.4},
        "found": {"value": 16.0, "low": 16.0, "high": 16.0},
    }
    assert found["curves"]["loss"][0] == {"samples": 8, "seconds": 3.5, "value": pytest.approx(3.9602)}
