"""The probe of a machine's speed; a search on real nodes is in `engines/test_nodes`."""

import pytest

from autotune.trials import on_node


def test_it_is_a_time_for_the_cpu_and_one_for_the_gpu():
    (cpu_s,) = on_node.probe_s(None)
    assert cpu_s > 0
    assert on_node.probe_s("print(0.5)")[1:] == (0.5,)


def test_the_best_turn_counts(monkeypatch):
    times_s = iter(t for turn in range(60) for t in (10.0 * turn, 10.0 * turn + (1.0 if turn == 30 else 2.0)))
    monkeypatch.setattr(on_node.time, "perf_counter", lambda: next(times_s))
    assert on_node.probe_s(None) == (1.0,)


def test_a_gpu_that_does_not_compute_is_reported_with_its_error():
    with pytest.raises(RuntimeError, match="its GPU does not compute: CUDA error: made up"):
        on_node.probe_s("raise SystemExit('CUDA error: made up')")
