"""The picture of a search: its content, and that it fits a terminal of 80 columns."""

from dataclasses import replace

import pytest
from rich.console import Console

from autotune.core.trial import Failure, Outcome, Status
from autotune.display import draw
from autotune.display.estimate import Remaining
from autotune.display.snapshot import RunningTrial, Snapshot
from autotune.judging.decisions import confirm
from autotune.judging.decisions.history import History
from autotune.space.sections import Objective
from autotune.storage.study_file import SearchPlan

LONG = "a reason that is so long that nobody would read it to its end, and that wraps all the same; " * 5


def lines(picture, width=80, height=None):
    console = Console(width=width, height=height or 1000, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(picture)
    return capture.get().splitlines()


@pytest.fixture
def make(make_trial, space):
    """Returns a maker of snapshots in the middle of a search, by the numbers of ended and running trials."""

    def made(ended=4, running=1, **changes):
        trials = [make_trial(0, 26.5, 0.1540, half_width=0.3, peak=2**31, x=0)]
        knobs = {"accumulation_steps": 2, "num_workers": 2, "channels_last": True, "learning_rate": 2.8e-4}
        figures = {"quality": 0.1523, "half_width": 62.6, "peak": 2**30}
        trials += [make_trial(n, 1271.3 + n, **figures, **knobs, x=n) for n in range(1, ended)]
        if ended > 2:
            full = Outcome(Status.FAILED, Failure.OOM, "MemoryError: it is full")
            trials[1] = replace(make_trial(1, **knobs), outcome=full)
        now = [make_trial(100 + n, 61.2, 0.1234, half_width=2.1, peak=2**28, **knobs) for n in range(running)]
        now = [replace(t, outcome=None, measurement=replace(t.measurement, samples=9000)) for t in now]
        known = {
            "session": "runs/iu",
            "device": "NVIDIA A100-SXM4-80GB (79.2 GiB), 16 CPUs, 128.0 GiB",
            "state": "running",
            "space": space,
            "plan": SearchPlan(40, 7200.0, 842.0),
            "trials": tuple(trials),
            "running": tuple(RunningTrial(t, "measuring", 185.0) for t in now),
            "passed_over": (),
            "best": confirm.recommended(History(trials, space)),
            "remaining": Remaining(1200.0, 2100.0),
        }
        return Snapshot(**known | changes)

    return made


def test_the_picture_has_all_figures(make):
    text = "\n".join(lines(draw.fitted_picture(make(), 24)))
    assert "runs/iu on NVIDIA A100-SXM4-80GB (79.2 GiB), 16 CPUs, 128.0 GiB" in text
    assert "4 of 40 trials ended, 1 running" in text
    assert "14m 02s of 2h 00m, about 20m 00s to 35m 00s left" in text
    assert "61.2 ± 2.1   0.1234  256 MiB" in text
    assert " measuring " in text
    assert " 45%" in text
    assert " 3m 05s" in text
    assert "1,274 ± 63   0.1523  1.0 GiB  48.09x" in text
    assert "possibly faster, not confirmed" in text
    assert "baseline: batch 16 fp32" in text
    assert "failed (oom): MemoryError: it is full" in text


@pytest.mark.parametrize("width", [80, 81, 100, 200])
@pytest.mark.parametrize("height", [24, 30, 50])
@pytest.mark.parametrize(("ended", "running"), [(0, 0), (0, 1), (1, 1), (4, 2), (40, 1), (40, 16)])
def test_the_picture_fits_the_terminal(make, width, height, ended, running):
    shown = make(ended, running) if ended else make(1, running, trials=(), best=None, remaining=None)
    drawn = lines(draw.fitted_picture(shown, height), width)
    assert max(map(len, drawn)) <= min(width, 100)
    best = next(i for i, line in enumerate(drawn) if "best so far" in line)
    assert best + 3 < height, "only lines below the best are cropped"
    for number in range(min(running, 2)):
        assert any(line.strip().startswith(str(100 + number)) for line in drawn[:best])


def test_trials_without_room_are_counted(make):
    drawn = "\n".join(lines(draw.fitted_picture(make(4, 16), 24)))
    assert "101 batch 32 (2 x 16 accumulated)" in drawn
    assert "and 10 more" in drawn


def test_words_are_never_split(make):
    words = "\n".join(lines(draw.fitted_picture(make(40, 2), 50))).split()
    assert {"channels_last", "workers", "accumulated)", "0.00028"} <= set(words)
    assert not {"channels_las", "t", "work", "ers"} & set(words)


def test_a_long_reason_is_cut_and_wraps_within_its_column(make, make_trial):
    failed = replace(make_trial(1), outcome=Outcome(Status.FAILED, Failure.ERROR, LONG))
    drawn = lines(draw.fitted_picture(make(trials=(*make().trials[:1], failed)), 24))
    wrapped = [line for line in drawn if "reason" in line or "wraps" in line]
    assert 1 < len(wrapped) <= 6
    assert all(line.startswith(" " * 30) or line.strip().startswith("1 ") for line in wrapped)
    assert any(line.rstrip().endswith("...") for line in drawn)


def test_a_confirmed_winner_has_the_factor_and_the_interval_of_its_race(make, make_trial, confirming):
    trials = [make_trial(0, 10, 0.2, half_width=0.1, x=0), make_trial(1, 31, 0.2, half_width=0.1, x=1)]
    trials += confirming(trials, 1)
    space = make().space
    shown = make(trials=tuple(trials), best=confirm.recommended(History(trials, space)))
    text = "\n".join(lines(draw.fitted_picture(shown, 24)))
    assert "2 of 40 trials ended, 1 running; also 1 speed comparison, 6 runs" in text
    assert "3.00x" in text
    assert "confirmed: 2.97x to 3.03x" in text
    assert "trial 1's settings, another seed" in text


def test_an_empty_search_says_so(make):
    nothing = make(1, 0, trials=(), best=None, remaining=None)
    assert "the first trial is about to start" in "\n".join(lines(draw.fitted_picture(nothing, 24)))
    first = make(1, 1, trials=(), best=None, remaining=None)
    text = "\n".join(lines(draw.fitted_picture(first, 24)))
    assert "14m 02s of 2h 00m, the end is not known yet" in text
    assert "the baseline is not measured yet" in text


def test_the_full_picture_has_every_trial(make):
    shown = make(30, 0, state="ended", remaining=None)
    drawn = lines(draw.full_picture(shown))
    assert "14m 02s of 2h 00m, ended" in drawn[2]
    numbers = [line[:5].strip() for line in drawn[drawn.index(next(x for x in drawn if "newest" in x)) :]]
    assert [int(n) for n in numbers if n.isdigit()] == list(range(29, -1, -1))


def test_of_thousands_of_trials_the_last_thousand_are_drawn(make):
    drawn = lines(draw.full_picture(make(1003, 0, state="ended", remaining=None)))
    numbers = [int(first) for line in drawn if (first := line[:5].strip()).isdigit()]
    assert (numbers[-1], len(drawn) > 1000) == (3, True)
    assert "and 3 earlier ones, which" in "\n".join(drawn)


def test_an_interrupted_session_does_not_count_as_running(make):
    text = "\n".join(lines(draw.full_picture(make(4, 1, state="interrupted"))))
    assert "4 of 40 trials ended, 1 interrupted" in text
    assert "running" not in text


def test_a_broken_constraint_is_shown_below_the_figures(make, space):
    constrained = space.revised(objective={"constraints": {"rouge_l": ">= 0.2"}})
    text = "\n".join(lines(draw.full_picture(make(space=constrained)), width=100))
    assert "cannot win: no evaluation has rouge_l" in text


def test_a_loss_and_tokens_are_headed_by_their_own_names(make, make_trial, space):
    goal = Objective(minimize="val_loss", within=0.02, select="same-quality")
    lower = space.model_copy(update={"objective": goal, "unit": "tokens"})
    trials = (make_trial(0, 26.5, -2.154, half_width=0.3, peak=2**31, x=0),)
    best = confirm.recommended(History(trials, lower))
    text = "\n".join(lines(draw.full_picture(make(trials=trials, running=0, best=best, space=lower))))
    assert "tokens/s" in text
    assert "samples" not in text
    assert "26.5 ± 0.3   2.1540" in text
    assert "tokens/s val_loss" in text
