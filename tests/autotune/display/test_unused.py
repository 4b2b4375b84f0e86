import time

from autotune.display import unused
from autotune.judging.decisions.history import History


def test_thousands_of_trials_that_read_the_same_are_not_compared_in_pairs(make_trial, space):
    scores = {"bleu_1": 0.4, "bleu_4": 0.2}
    trials = [make_trial(n, 10, 0.2, scores=scores, dropout=n, width=n) for n in range(3000)]
    began_s = time.process_time()
    assert unused.unused(History(trials, space)) == []
    assert time.process_time() - began_s < 1
