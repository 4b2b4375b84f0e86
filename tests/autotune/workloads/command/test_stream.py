"""Events from several sources are emitted in the order in which they happened."""

import math

import pytest

from autotune.inside.messages import Message, Scores, Step
from autotune.workloads.command.stream import Timeline, evaluated_s, known_s


def test_late_messages_come_in_order():
    timeline = Timeline()
    timeline.add(Message(2.0, Step(1)))
    timeline.add(Message(1.9, Scores({"acc": 0.5})))  # printed before that step, but read after it
    assert list(timeline.until(1.8)) == []
    assert list(timeline.until(2.0)) == [Message(1.9, Scores({"acc": 0.5})), Message(2.0, Step(1))]


def test_the_scores_of_one_evaluation_are_together():
    timeline = Timeline()
    for at_s, scores in ((1.0, {"a": 1.0}), (1.1, {"b": 2.0}), (1.2, {"a": 3.0}), (9.0, {"b": 4.0})):
        timeline.add(Message(at_s, Scores(scores)))
    assert list(timeline.until(9.1)) == [
        Message(1.1, Scores({"a": 1.0, "b": 2.0})),
        Message(1.2, Scores({"a": 3.0})),
    ]
    assert list(timeline.until(math.inf)) == [Message(9.0, Scores({"b": 4.0}))]


def test_a_step_ends_an_evaluation_and_time_never_goes_back():
    timeline = Timeline()
    timeline.add(Message(1.0, Scores({"a": 1.0})))
    timeline.add(Message(1.1, Step(8)))
    assert [message.at_s for message in timeline.until(1.1)] == [1.0, 1.1]
    timeline.add(Message(0.5, Step(8)))
    assert list(timeline.until(2.0)) == [Message(1.1, Step(8))]


@pytest.mark.parametrize(
    ("steps_s", "read_s", "wanted_s"),
    [
        ([1.0, 1.1, 1.2, 1.3], 1.35, None),  # no step was long
        (
            [1.0, 1.1, 1.2, 9.3],
            9.31,
            9.2,
        ),  # the last step contains the evaluation, and was reported before the line
        ([1.0, 1.1, 1.2, 9.3, 9.4], 9.45, 9.2),
        ([1.0, 1.1, 9.2, 9.3, 9.4, 9.5], 9.55, None),  # too long ago
        ([1.0, 1.1, 1.2, 9.3], 9.15, None),  # in time
        ([1.0, 1.02, 1.04, 1.06, 1.2], 1.3, None),  # that step waited for a core
        ([0.9, 1.0, 1.1, 1.2, 9.3, 9.302, 9.31], 9.32, 9.2),  # the longest
        ([1.0, 1.002, 1.004, 1.012, 1.014], 1.02, None),  # a step this short may have waited for a core
        ([], 1.0, None),
    ],
)
def test_a_line_that_was_read_late_was_printed_before_the_long_step(steps_s, read_s, wanted_s):
    assert evaluated_s(read_s, steps_s) == (wanted_s and pytest.approx(wanted_s))


def test_what_follows_a_long_step_is_held_back_longer():
    assert known_s(2.0, [1.7, 1.8, 1.9]) == pytest.approx(1.95)
    assert known_s(2.0, [1.0, 1.01, 1.02, 1.9]) == pytest.approx(1.8)
