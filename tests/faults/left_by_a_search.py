"""Creates a session like a search's, without a search but with the same code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.measurement import Evaluation, Measurement, Slice, Throughput
from autotune.core.trial import Failure, Outcome, Repeat, Status, Trial
from autotune.space import spaces
from autotune.storage import identity, provenance, studies
from autotune.storage.store import Options, StoredSession
from autotune.storage.study_file import SearchPlan
from autotune.system.telemetry import Hardware
from autotune.trials import failures
from autotune.workloads import registry

from .sessions import KEPT, SPACE

HARDWARE = Hardware(cpus=4, host_memory_bytes=2**33, gpus=(), driver=None)
BATCHES = (4, 8, 16, 32)  # of trials 0 to 3; 4 is a race, 5 a repeat, 6 runs
RUNNING = 6


def figures(speed: float) -> Measurement:
    curve = tuple(Evaluation(n, n / speed, 0.1 + n / 4000) for n in (100, 200, 300, 400))
    return Measurement(
        throughput=Throughput(speed, 0.1, 100, 10.0),
        quality=0.2,
        quality_samples=400,
        curve=curve,
        samples=400,
        peak_memory_bytes=2**24,
        scores={"bleu_4": 0.2},
    )


def make(root: Path, text: str = SPACE) -> StoredSession:
    """Creates a session of seven trials, the last of which is running."""
    space = spaces.complete(spaces.parse(text, "test"), "test")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(KEPT)
        facts = provenance.collect("s", space, registry.load(space.workload), HARDWARE, 0)
    session = StoredSession.create(root, space, Options(wandb="off"), facts)
    study = studies.open_study(session.study_file, space, session.key)
    studies.set_plan(study, SearchPlan(6, None, 40.0))
    for batch in BATCHES:
        config = {**space.baseline_config, "micro_batch_size": batch}
        trial = begin(session, study, {**config, "learning_rate": 0.001 * (batch / 4) ** 0.5})
        if batch == 32:
            end(session, study, trial, failures.failure(Failure.OOM, "made"), Measurement())
        else:
            end(session, study, trial, Outcome(Status.COMPLETED), figures(100.0 * batch))
    config = dict(studies.read(study).trials[0].config)
    race = begin(session, study, config, race=(0, 2))
    slices = tuple(Slice(n, r, 100, 1.0 / (n + 1), 10) for r in (1, 2) for n in (0, 2))
    end(session, study, race, Outcome(Status.COMPLETED), Measurement(slices=slices))
    repeat = begin(session, study, config, Repeat(0, 1))
    end(session, study, repeat, Outcome(Status.COMPLETED), figures(400.0))
    begin(session, study, {**config, "micro_batch_size": 8})
    studies.close(study)
    return session


def begin(session: StoredSession, study, config, repeat=None, **rest) -> Trial:
    """Begins a trial as the search and its supervisor do."""
    trial = studies.begin(study, session.space(), config, repeat, **rest)
    place = session.trial_dir(trial.number)
    place.work.mkdir(parents=True)
    identity.write_identity(place, session.identity_of(trial))
    (place.work / "state").write_text("40")
    lines = [{"attempt": 1000.0 * trial.number, "clock_s": 5.0}]
    lines += [{"samples": 4 * n, "train_loss": 1.0, "at_s": 5.0 + n} for n in range(1, 11)]
    place.records_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return trial


def end(session: StoredSession, study, trial: Trial, outcome: Outcome, measurement: Measurement) -> None:
    identity.write_verdict(session.trial_dir(trial.number), outcome, measurement)
    ended = replace(trial, outcome=outcome, measurement=measurement, seconds=10.0)
    studies.end(study, ended, 0.85)
    session.remove_work([ended])
