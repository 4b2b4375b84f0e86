"""Accepts a suggestion, shrinks its micro-batch, or refuses it. Pure."""

from collections.abc import Sequence
from functools import partial

from autotune.core.settings import BATCH, LEARNING_RATE, LENGTH, Config, Key, settings_key
from autotune.core.trial import Failure, RejectedFor, Trial
from autotune.judging.decisions import planning, stopping
from autotune.judging.decisions.history import History
from autotune.judging.decisions.stopping import Threshold
from autotune.memory.feasibility import MemoryModel
from autotune.searcher import sampler
from autotune.searcher.sampler import Feedback, Refusal
from autotune.space import configurations
from autotune.space.knobs import ScaledLearningRate

_RUINED = 0.5  # of the baseline's improvement: a training that keeps less has not just lost a little
_TIMES_LOWER = 2**0.5  # than a rate that ruined a training: a closer one would hardly do better


class Screening:
    """Screens suggestions by the trials so far: refuses those that cannot fit, cannot win, or were tried."""

    def __init__(
        self,
        history: History,
        threshold: Threshold,
        memory_limit_bytes: int | None,
        earlier: Sequence[Trial] = (),
    ) -> None:
        """`earlier` trials of another session count only for memory: speed has to be measured again."""
        space = history.space
        self._space, self._threshold = space, threshold
        self._worst = sampler.worst(space)
        self._memory = MemoryModel(
            [*earlier, *history.trials],
            fraction=space.limits.memory_fraction,
            limit_bytes=memory_limit_bytes,
            known=space.known,
        )
        self._rates = RateLimit(history)
        self._sizes = space.micro_batch_sizes
        self._tried = {t.key_without(planning.WITHOUT_LENGTH) for t in history.searched}
        self._speeds = history.speeds
        # A configuration that differs from a measured one only in settings without effect on speed has its
        # speed. It is not worth a trial if that is too slow, or if quality decides nothing. Trainings that
        # may differ in length are excepted.
        is_fixed = not planning.is_wanted(space) and space.objective.target is None
        counts = is_fixed and space.objective.select != "pareto"
        self._rival = next(iter(threshold.rivals), None) if counts else None
        self._fastest = history.trial(self._rival.number) if self._rival else None
        self._timed = {
            t.key_without(space.known.same_speed): t
            for t in history.searched
            if t.completed and space.objective.asks_for_speed_alone
        }

    def __call__(self, config: Config) -> Config | Refusal:
        if refusal := self._outside(config):
            return refusal
        if self._sizes:
            space, size = self._space, self._memory.largest_worth_trying(config, self._sizes)
            regrouped = configurations.regrouped(space, config, size)
            config = regrouped or configurations.resized(space, config, size)
            if refusal := self._outside(config):  # accumulation that follows the batch needs memory, too
                return refusal
        if settings_key(config, planning.WITHOUT_LENGTH) in self._tried:
            return Refusal(RejectedFor.TRIED, "was already tried")
        return self._known_too_slow(config) or config

    def _outside(self, config: Config) -> Refusal | None:
        if reason := self._space.violation(config):
            return Refusal(RejectedFor.LIMITS, reason, self._worst)
        if reason := self._memory.explain_misfit(config):
            return Refusal(RejectedFor.MEMORY, reason, self._worst)
        if reason := self._rates.explain_excess(config):
            return Refusal(RejectedFor.QUALITY, reason, self._worst)
        return None

    def _known_too_slow(self, config: Config) -> Refusal | None:
        if self._rival is None or self._fastest is None:
            return None
        key = self._space.speed_key(config)
        if like := self._timed.get(key):
            reason = f"is as fast as trial {like.number}"
            return Refusal(RejectedFor.SPEED, reason, Feedback((like.samples_per_s or 0.0,)))
        if self._fastest.number and key == self._space.speed_key(self._fastest.config):
            reason = f"is as fast as trial {self._fastest.number}, which keeps the quality"
            return Refusal(RejectedFor.SPEED, reason, Feedback((self._rival.samples_per_s,)))
        throughput = self._speeds.throughput_like(config, self._fastest)
        samples = self._space.samples(config)
        reason = stopping.explain_slower(throughput, self._rival, self._threshold, samples) or ""
        if throughput is None or not reason:
            return None
        feedback = Feedback((throughput.samples_per_s,))
        return Refusal(RejectedFor.SPEED, f"by equal settings, {reason}", feedback)


class RateLimit:
    """The lowest learning rates that ruined a training, as multipliers of the rate scaled with the batch.

    They are too high for other batches, too, and for settings that only change the speed.
    """

    def __init__(self, history: History) -> None:
        self._space = history.space
        self._alike = frozenset({LEARNING_RATE, LENGTH, *BATCH, *history.space.known.same_training})
        self._ruined: dict[Key, tuple[float, Trial]] = {}
        if not isinstance(history.space.knobs.get(LEARNING_RATE), ScaledLearningRate):
            return
        for trial in (t for t in history.searched if t.number and t.outcome):
            if not trial.cached(("ruined", history.context), partial(_is_ruined, trial, history)):
                continue
            multiplier, key = self._multiplier(trial.config), trial.key_without(self._alike)
            if multiplier > 1 and (key not in self._ruined or multiplier < self._ruined[key][0]):
                self._ruined[key] = multiplier, trial

    def _multiplier(self, config: Config) -> float:
        return float(config.get(LEARNING_RATE) or 0) / self._space.learning_rate(config, 1.0)

    def explain_excess(self, config: Config) -> str | None:
        """Returns the reason if the learning rate of `config` is too high, else None."""
        lowest = self._ruined.get(settings_key(config, self._alike))
        if lowest is None or self._multiplier(config) * _TIMES_LOWER <= lowest[0]:
            return None
        return f"has a learning rate like that of trial {lowest[1].number}, which lost its quality"


def _is_ruined(trial: Trial, history: History) -> bool:
    if trial.outcome is not None and trial.outcome.failure is Failure.DIVERGED:
        return True
    share = sampler.quality_share(trial, history)
    return share is not None and share < _RUINED
