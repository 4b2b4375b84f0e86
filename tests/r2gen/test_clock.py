import time

import torch

from r2gen.clock import Stopwatch


def test_phases_follow_each_other_and_add_up() -> None:
    begun = time.perf_counter()
    watch = Stopwatch(torch.device("cpu"))
    for _ in range(2):
        time.sleep(0.01)
        watch.mark("slow")
        watch.mark("quick")
    found = watch.seconds()
    passed_s = time.perf_counter() - begun
    assert list(found) == ["slow", "quick"]
    assert 0.02 <= found["slow"] <= passed_s
    assert sum(found.values()) <= passed_s
