"""Secrets appear in no file, whichever part of a trial prints them."""

import pytest

from autotune.core.measurement import Metric
from autotune.core.trial import Failure
from autotune.trials.child import Child
from autotune.trials.fork_server import ForkServer
from autotune.trials.order import Ends, Order

from .children import listen

SECRET = "made-up-" + "0123456789" * 2
WAYS = ("print", "logging", "subprocess", "worker", "thread")


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)


@pytest.mark.parametrize(
    ("dies", "last"), [(False, "ValueError: main: (hidden)"), (True, "what(): (hidden)")]
)
def test_no_printed_key_is_in_the_log_or_the_verdict(tmp_path, dies, last):
    config = {"secret": SECRET, "dies": dies}
    order = Order(0, "workloads_for_tests:tells_a_secret", config, str(tmp_path), Metric("bleu_4"), Ends(9))
    child = Child(order, ForkServer([]))
    events = listen(child)
    child.kill()
    log = (tmp_path / "log").read_text()
    assert SECRET not in log
    assert [way for way in WAYS if f"{way}: (hidden)" not in log] == []
    assert last in log
    assert "x://me:(hidden)@host" in log
    assert child.verdict.failure is Failure.ERROR
    assert SECRET not in child.verdict.reason
    assert [event.get("note") for event in events] == ["(hidden)"]
    assert events[0]["notes"] == [{"url": "x://me:(hidden)@host"}]
