"""Suggestions that were not started: what they are written as, and what was written before they had kinds."""

import json

import pytest

from autotune.core.passed_over import PassedOver, Refused

CONFIG = {"micro_batch_size": 64}


def test_what_was_passed_over_is_read_as_it_was_written():
    for kind in Refused:
        one = PassedOver(CONFIG, kind, "effective batch 512 is outside [8, 128]")
        assert PassedOver.from_dict(json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("needs no less memory than trial 2, which ran out of it", Refused.MEMORY),
        ("predicted to need 9.1 GiB (8.7 to 9.5) of 6.8 GiB", Refused.MEMORY),
        ("effective batch 64 is outside [4, 32]", Refused.LIMITS),
        ("equal settings read at most 9.1 samples/s; trial 5 has 12.3", Refused.SPEED),
        ("is as fast as trial 1, which keeps the quality", Refused.SPEED),
    ],
)
def test_what_was_passed_over_in_words_alone_is_told_by_them(reason, kind):
    assert PassedOver.in_words(CONFIG, reason) == PassedOver(CONFIG, kind, reason)
