import json
import time
from types import SimpleNamespace

import pytest

from autotune.__main__ import main
from autotune.core.measurement import Measurement
from autotune.core.trial import Failure, Outcome, Status
from autotune.sessions.gpus import Fault, Look, Torch
from autotune.system.nvml import Gpu
from autotune.system.telemetry import Hardware
from lab.__main__ import app
from lab.gpu_check import check, of_machine, of_memory, of_model
from lab.gpu_check.bench import Ran, last_lines
from lab.gpu_check.check import Point
from lab.gpu_check.verdicts import Found

A100 = Gpu("NVIDIA A100", 2**36, (8, 0), "GPU-0", label="GPU 0")
ON_A100 = Hardware(8, 2**34, (A100,), "580.1")


def bench(left_s=60.0, **changed):
    """Returns a bench that runs nothing."""
    told = SimpleNamespace(**{"left_s": left_s, "hardware": ON_A100, "limit_bytes": 2**34, **changed})
    told.within = lambda most_s: told
    return told


def test_a_point_that_breaks_does_not_hold_and_the_next_is_asked():
    def breaks(_):
        yield Found("first", True, "8 GiB")
        raise RuntimeError("two\nlines")

    points = [Point("one", breaks), Point("two", lambda _: [Found("second", True, "right")])]
    first, broken, second = check.run(bench(), points)
    assert (first.ok, second.ok) == (True, True)
    assert broken == Found("one", False, "the check broke off: RuntimeError: two lines")


def test_no_point_is_asked_when_the_time_is_over():
    assert list(check.run(bench(0.0), [Point("one", None)])) == [Found("one", None, "the time is over")]


@pytest.mark.parametrize(
    ("answers", "holds"),
    [([True, None], True), ([True, False], False), ([None], False), ([], False)],
)
def test_a_check_holds_if_every_checked_point_does(answers, holds):
    assert check.holds([Found("", ok, "") for ok in answers]) is holds


def test_a_line_shows_whether_the_point_holds():
    said = [check.line(Found("bf16 computes", ok, "right")).plain for ok in (True, False, None)]
    assert [text.split("  ")[0] for text in said] == ["yes", "no", "not asked"]
    assert len({text.index("bf16") for text in said}) == 1


def test_the_file_says_why_trials_failed_and_how_torch_was_told_to_run(tmp_path, monkeypatch):
    (tmp_path / "log").write_bytes(b"1\n" * 100 + b"\x1b[31mCUDA error: \xff\n")
    failed = [{"ending": "failed (error)", "log": last_lines(tmp_path / "log")}]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("CUDA_TOKEN", "0123456789abcdef")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106,MIG-a1b2c3d4")
    told = json.loads(check.to_json(ON_A100, [], 1.0, failed=failed))
    assert told["machine"]["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-(hidden),MIG-(hidden)"
    assert told["failed_trials"][0]["log"] == ["1"] * 39 + [" [31mCUDA error: \ufffd"]
    assert told["machine"]["environment"]["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert told["machine"]["environment"]["CUDA_TOKEN"] == "(hidden)"
    assert last_lines(tmp_path / "none") == []


def test_without_a_gpu_it_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert main(["gpu"], lambda: app) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("autotune: gpu: needs a GPU: ")
    assert err.count("\n") == 1


def test_torch_that_does_not_start_agrees_with_nothing():
    (found,) = of_machine.judge_look(Look(Fault("`import torch` fails: no room", "")), bench())
    assert (found.ok, found.detail) == (False, "`import torch` fails: no room")


def test_the_build_of_torch_is_among_the_figures():
    build = {"version": "2.13.0", "cuda": "13.0", "kernels": ("sm_80",)}
    first, *_ = of_machine.judge_look(Look(Torch(**build)), bench())
    assert (first.ok, first.figures) == (True, build)


def test_an_exclusive_gpu_is_not_shared():
    exclusive = Hardware(8, 2**34, (Gpu("NVIDIA A", 2**33, (8, 0), "GPU-0", exclusive=True),), "580.1")
    (found,) = of_memory.two_at_once(bench(hardware=exclusive))
    assert (found.ok, found.detail) == (None, "it is in exclusive compute mode")


OOM = Outcome(Status.FAILED, Failure.OOM, "CUDA out of memory")


@pytest.mark.parametrize(
    ("outcome", "held_bytes", "ok"),
    [
        (OOM, 2**33, True),
        (OOM, 2**34, False),
        (Outcome(Status.FAILED, Failure.ERROR, "no engine"), 2**33, False),
        (None, 2**33, False),
    ],
)
def test_memory_runs_out_as_an_out_of_memory_and_at_its_cap(outcome, held_bytes, ok):
    ran = Ran(outcome, records=[{"samples": 1, "held_bytes": held_bytes, "at_s": time.monotonic()}])
    found = of_memory._judge_shortage("under a cap", ran, 2**33, 0)
    assert found.ok is ok
    assert found.figures["back_s"] >= 0


def test_other_memory_of_a_process_is_reported_or_the_reason_why_not():
    told = [Ran(OOM, Measurement(context_bytes=size)) for size in (300 * 2**20, 500 * 2**20)]
    assert of_memory._report_context(told).detail == "500 MiB"
    assert of_memory._report_context([told[0], Ran(OOM)]).ok is None


@pytest.mark.parametrize(
    ("loss", "reference", "ok"), [(2.0, 2.0, True), (2.5, 2.0, False), (2.0, None, None), (None, 2.0, False)]
)
def test_a_combination_is_held_against_fp32(loss, reference, ok):
    ran = Ran(Outcome(Status.COMPLETED))
    assert of_model._found("bf16", ran, loss, reference, "bf16").ok is ok
    assert of_model._found("bf16", Ran(None), loss, reference, "bf16").ok is None
