"""Ray Tune's search with Optuna, extended to learn the limit of memory and to stay within it."""

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from autotune.core.settings import MICRO_BATCH, Config
from autotune.core.trial import Failure, Outcome, Status, Trial
from autotune.memory.feasibility import MemoryModel
from autotune.ray import errors
from autotune.ray.parameters import KNOWN, Parameters

logger = logging.getLogger(__name__)

# A user attribute of the study's trials, from which the limit is learnt: the study may outlive the process.
MEMORY = "memory"
FITTED, OUT_OF_MEMORY, PASSED_OVER = "fitted", "out of memory", "passed over"

_DRAWS = 20  # suggestions to rule out before memory parameters are chosen that may fit
_MOST_COMBINATIONS = 10_000
_MARGIN = 0.7  # factor on the need that failed, below which others are tried, for each failure but the first
_OUTCOMES = {FITTED: Outcome(Status.COMPLETED), OUT_OF_MEMORY: Outcome(Status.FAILED, Failure.OOM)}


class MemoryAwareSearch(OptunaSearch):
    """`OptunaSearch` that loses few trials to out-of-memory: a drop-in replacement for it in `tune.Tuner`.

    It begins with the smallest batch size and enlarges it as long as that is likely to fit. A suggestion that
    needs at least as much memory as a trial that ran out of it is never run: Optuna is told that it was
    pruned, and draws another one. The user attribute `memory` of the study's trials has the result of each.
    """

    def __init__(self, *args: Any, memory_parameters: Sequence[str] | None = None, **kwargs: Any) -> None:
        """Takes the arguments of `OptunaSearch`.

        `memory_parameters`: the parameters that affect peak memory, nested ones as `model/width`. By default
        they are recognised by their names (see `Parameters`). Memory must grow with the batch size, or else
        with the first of these parameters that is a number.
        """
        self._memory_parameters = None if memory_parameters is None else tuple(memory_parameters)
        self._experiment_dir: Path | None = None
        super().__init__(*args, **kwargs)

    def _setup_study(self, mode: Any) -> None:
        if isinstance(self._space, dict) and (unknown := {*(self._memory_parameters or ())} - {*self._space}):
            raise ValueError(f"memory_parameters: not in the search space: {', '.join(sorted(unknown))}")
        super()._setup_study(mode)

    def suggest(self, trial_id: str) -> Any:
        """Returns a configuration that may fit into memory; `Searcher.FINISHED` if none is left."""
        if self._ot_study is None:
            return super().suggest(trial_id)  # which raises: there is no search space yet
        ended = [self._as_trial(t, memory) for t in self._trials() if (memory := _memory(t)) in _OUTCOMES]
        model, points = MemoryModel(ended, known=KNOWN), len(self._trials(TrialState.WAITING))
        careful = self._careful_model(ended, model)
        for draw in range(points + _DRAWS):
            suggestion = super().suggest(trial_id)
            drawn: optuna.Trial = self._ot_trials[trial_id]
            parameters = self._parameters(drawn)
            config = parameters.config(drawn.params)
            wanted = config if draw < points else _with_size_to_try(careful, parameters, config)
            reason = model.explain_misfit(wanted)
            if not config or (wanted == config and reason is None):
                return suggestion
            del self._ot_trials[trial_id]
            drawn.set_user_attr(MEMORY, PASSED_OVER)
            # Without a reason it may fit later, so it is not reported as bad.
            self._study.tell(drawn, state=TrialState.PRUNED if reason else TrialState.FAIL)
            if reason is None:
                return self._suggest_given(trial_id, drawn.params | {parameters.size: wanted[MICRO_BATCH]})
        # All draws were ruled out: the memory parameters that have fitted come first.
        fitted = (t.params for t in reversed(self._trials()) if _memory(t) == FITTED)
        others = itertools.islice(parameters.combinations(), _MOST_COMBINATIONS)
        for choice in itertools.chain(fitted, others):
            values = drawn.params | {name: choice[name] for name in choice.keys() & parameters.names.keys()}
            if model.explain_misfit(parameters.config(values)) is None:
                return self._suggest_given(trial_id, values)
        logger.warning("the search ends: what is left needs no less memory than trials that ran out of it")
        return Searcher.FINISHED  # on None, Ray Tune would wait for a trial to end

    def _careful_model(self, ended: Sequence[Trial], model: MemoryModel) -> MemoryModel:
        """Returns a model that is more careful after every failure, because the limit is not sharp."""
        # A running trial counts as failed until it has shown that it fits.
        running = (self._ot_trials[name] for name in self._ot_trials.keys() - self._completed_trials)
        unknown = (self._as_trial(t, OUT_OF_MEMORY) for t in running if MEMORY not in t.user_attrs)
        risks = [trial for trial in unknown if not model.is_known_to_fit(trial.config)]
        repeated = sum(trial.out_of_memory for trial in ended) + bool(risks) - 1
        margin = _MARGIN**repeated if repeated > 0 else None
        return MemoryModel([*ended, *risks], known=KNOWN, margin=margin)

    @property
    def _study(self) -> optuna.Study:
        return self._ot_study  # type: ignore[return-value]  # set with the search space

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _suggest_given(self, trial_id: str, values: dict[str, Any]) -> Any:
        self._study.enqueue_trial(values)
        return super().suggest(trial_id)

    def _parameters(self, trial: optuna.Trial | FrozenTrial) -> Parameters:
        return Parameters(trial.distributions, self._memory_parameters)

    def _as_trial(self, trial: optuna.Trial | FrozenTrial, memory: str) -> Trial:
        return Trial(trial.number, self._parameters(trial).config(trial.params), _OUTCOMES[memory])

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._note(trial_id, FITTED)
        super().on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Optuna the result; an out-of-memory counts as pruned, because TPE ignores failures."""
        if error and self._is_out_of_memory(trial_id):
            self._note(trial_id, OUT_OF_MEMORY)
            error = False
        elif result and not error:
            self._note(trial_id, FITTED)
        super().on_trial_complete(trial_id, result, error)

    def _note(self, trial_id: str, memory: str) -> None:
        drawn: optuna.Trial | None = self._ot_trials.get(trial_id)
        if drawn and trial_id not in self._completed_trials and drawn.user_attrs.get(MEMORY) != memory:
            drawn.set_user_attr(MEMORY, memory)

    def _is_out_of_memory(self, trial_id: str) -> bool:
        """Judges by the trial's error file: Ray tells a searcher only that it has failed."""
        files = self._experiment_dir.glob(f"*/{errors.FILE}") if self._experiment_dir else ()
        # With a `trial_dirname_creator`, perhaps no name has the ID: then the newest, just written, counts.
        by_id_and_age = ((trial_id in file.parent.name, file.stat().st_mtime_ns, file) for file in files)
        if (latest := max(by_id_and_age, default=None)) is None:
            logger.warning("no file says why trial %s failed, so it is no evidence of memory", trial_id)
            return False
        outcome = errors.outcome_of(latest[2].parent)
        # Of memory that is shared with the loader's workers, the batch size may not be the cause.
        return outcome.failure is Failure.OOM and outcome.shortage is None

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Saves the state, and notes the directory, in which Ray also writes the errors of trials."""
        self._experiment_dir = Path(checkpoint_dir)
        super().save_to_dir(checkpoint_dir, session_str)


def _memory(trial: FrozenTrial) -> str:
    """Returns the attribute `memory` of a trial; a completed trial without the attribute has fitted."""
    return str(trial.user_attrs.get(MEMORY, FITTED if trial.state is TrialState.COMPLETE else ""))


def _with_size_to_try(model: MemoryModel, parameters: Parameters, config: Config) -> Config:
    """Returns `config` with the largest size worth trying, which may be its own."""
    size: Any = config.get(MICRO_BATCH)
    sizes = parameters.sizes(size)
    return {**config, MICRO_BATCH: model.largest_worth_trying(config, sizes)} if sizes else config
