"""The probe of a machine's speed; a search on real nodes is in `engines/test_nodes`."""

import pytest

from autotune.trials import on_node


def test_it_is_a_time_for_the_cpu_and_one_for_the_gpu(monkeypatch):
    monkeypatch.setattr(on_node, "_ON_GPU", "print(0.5)")
    (cpu_s,) = on_node.probe_s(on_gpu=False)
    assert cpu_s > 0
    assert on_node.probe_s(on_gpu=True)[1:] == (0.5,)


def test_the_best_turn_counts(monkeypatch):
    times_s = iter(t for turn in range(60) for t in (10.0 * turn, 10.0 * turn + (1.0 if turn == 30 else 2.0)))
    monkeypatch.setattr(on_node.time, "perf_counter", lambda: next(times_s))
    assert on_node.probe_s(on_gpu=False) == (1.0,)


def test_a_gpu_that_does_not_compute_is_reported_with_its_error(monkeypatch):
    monkeypatch.setattr(on_node, "_ON_GPU", "raise SystemExit('CUDA error: made up')")
    with pytest.raises(RuntimeError, match="its GPU does not compute: CUDA error: made up"):
        on_node.probe_s(on_gpu=True)
