"""Ray's callback for W&B, extended to mark failed trials, and to keep runs offline without a key."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import wandb
from ray.air.integrations import wandb as integration
from ray.air.integrations.wandb import WandbLoggerCallback

from autotune.core.secrecy import without_secrets
from autotune.core.trial import Failure
from autotune.ray import errors

_FAILURE = "autotune_failure"  # the last result of a failed trial
_OFFLINE = {"offline", "disabled"}


class _LoggingActor(integration._WandbLoggingActor):
    """Logs one trial, in its own process, and calls W&B's `finish` at the end."""

    def _handle_result(self, result: dict[str, Any]) -> Any:
        if failure := result.pop(_FAILURE, None):
            run = self._wandb.run
            run.tags = (*(run.tags or ()), "failed", failure["failure"])
            run.summary.update({"status": "failed", **failure})
            self._wandb.finish = partial(run.finish, exit_code=1)  # type: ignore[attr-defined]
        return super()._handle_result(result)


class WandbCallback(WandbLoggerCallback):
    """`WandbLoggerCallback` with the same arguments, which marks failed trials, and needs no key offline.

    A failed trial's run has exit code 1, the tags `failed` and `oom`, `diverged` or `error`, and `failure`
    and `reason` in its summary. Without a key, runs stay offline in the directories of the trials.
    """

    _logger_actor_cls = _LoggingActor

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Chooses offline runs if there is no key or WANDB_MODE says so; names project and group."""
        mode = os.environ.get("WANDB_MODE") or ("online" if self._has_key() else "offline")
        self.kwargs.setdefault("mode", mode)
        self.project = self.project or os.environ.get("WANDB_PROJECT", "autotune")
        self.group = self.group or os.environ.get("WANDB_RUN_GROUP")
        if self.kwargs["mode"] not in _OFFLINE:
            super().setup(*args, **kwargs)  # type: ignore[no-untyped-call]

    def _has_key(self) -> bool:
        is_set = {integration.WANDB_ENV_VAR, integration.WANDB_SETUP_API_KEY_HOOK} & os.environ.keys()
        return bool(self.api_key or self.api_key_path or is_set or wandb.api.api_key)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        if trial not in self._trial_queues:  # it failed before it began
            self.log_trial_start(trial)
        if failed:
            outcome = errors.outcome_of(Path(trial.local_path))
            failure = {
                "failure": str(outcome.failure or Failure.ERROR),
                "reason": without_secrets(outcome.reason),
            }
            self._trial_queues[trial].put((integration._QueueItem.RESULT, {_FAILURE: failure}))
        super().log_trial_end(trial, failed)
