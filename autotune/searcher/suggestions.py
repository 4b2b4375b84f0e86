"""Suggests the next configuration to try, from rules of thumb and then from Optuna, with a planned length."""

from autotune.core.trial import Trial, TrialKind
from autotune.judging.decisions import replanning
from autotune.judging.decisions.confirm import Proposal
from autotune.judging.decisions.history import History
from autotune.judging.decisions.stopping import Threshold
from autotune.searcher import sampler as samplers
from autotune.searcher.heuristics import Heuristics
from autotune.searcher.ports import SearchOptions
from autotune.searcher.screening import Screening


class Suggestions:
    """The sampler and the heuristics of a search, which learn from every trial that begins or ends."""

    def __init__(self, history: History, options: SearchOptions, seed: int) -> None:
        self._options, self._seed = options, seed
        ranked = History(options.earlier, history.space).ranked
        self._heuristics = Heuristics([t.config for t in ranked], options.seed)
        self.relearn(history)

    def relearn(self, history: History) -> None:
        """Begins the sampler anew, from all trials: its space has changed."""
        self._sampler = samplers.informed(history, self._options.earlier, self._seed)

    def started(self, trial: Trial) -> None:
        if trial.kind is not TrialKind.RACE:  # a race has several configurations
            self._sampler.started(trial)

    def ended(self, trial: Trial, history: History) -> None:
        if trial.kind is not TrialKind.RACE:
            self._sampler.ended(trial, samplers.feedback(trial, history))

    def next(self, history: History, threshold: Threshold, share: float) -> Proposal | None:
        """Returns the next configuration with a `share` of its length; None if none is worth a trial."""
        if self._sampler.is_full:
            seed = self._seed + len(history.trials)  # the same one would repeat the suggestions
            self._sampler = samplers.informed(history, self._options.earlier, seed)
        screen = Screening(history, threshold, self._options.memory_limit_bytes, self._options.earlier)
        config, passed = self._sampler.suggest(screen, self._heuristics(history))
        if config is None:
            return None
        return Proposal(replanning.planned(config, history, share), passed=passed)
