"""What the trials of a search have in common; the only builder of the orders to run them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autotune.core.settings import Config
from autotune.core.trial import Trial
from autotune.judging import confirm, objective, racing
from autotune.space.space import Space
from autotune.storage.store import Options, Session
from autotune.storage.trial_dir import TrialDir
from autotune.system.telemetry import Hardware
from autotune.trials.order import Order, RaceOrder
from autotune.workloads import Workload

_TIMES_TO_TARGET = 8  # as many samples as the baseline's: before that, time ends who cannot win
_FEWEST_EVALUATIONS = 4  # before which nothing is called learnt
_CUDA_CONTEXT_BYTES = 600 * 2**20  # kernels and cuBLAS workspace; an estimate, not measured
_RACE_APART_S = 1800.0  # where every turn has a start before it
_ROOM_SHARE = 0.9  # of the memory: a peak is not the same in every run
_NEVER = 2**31  # samples: no evaluation falls into a race


@dataclass(frozen=True)
class Training:
    """What is trained, and what it may take: a workload with settings of a space, on this hardware."""

    space: Space
    workload: Workload
    hardware: Hardware
    options: Options

    def order(self, config: Config, place: TrialDir, *, number: int = 0, seed: int = 0) -> Order:
        """The order to train `config` over all samples of the space's budget, with a device to itself.

        `seed` is added to the settings' own.
        """
        budget, quality = self.space.budget, self.space.objective.quality
        settings = self.workload.with_seed(self.space.settings(config), seed)
        return Order(
            number=number,
            entry_point=self.workload.entry_point,
            settings=self.workload.for_trial(
                settings, budget.samples_per_trial, budget.evaluations_per_trial, quality
            ),
            directory=str(place.root),
            quality=quality,
            samples=budget.samples_per_trial,
            memory_limit_bytes=self.options.memory_limit_bytes,
            device_memory_bytes=self.hardware.device_bytes,
            stall_timeout_s=self.options.stall_timeout_s,
            revision=self.workload.revision(),
        )


@dataclass(frozen=True)
class Setup:
    """What the trials of a session are: of which space and workload, on what hardware."""

    session: Session
    space: Space
    workload: Workload
    hardware: Hardware

    @cached_property
    def options(self) -> Options:
        return self.session.options()

    @property
    def memory_limit_bytes(self) -> int:
        """What a trial of the search may take: of its GPU, or of the host where it has none."""
        hardware, options = self.hardware, self.options
        if hardware.device_bytes is None:
            beside = hardware.cpus // (options.cpus_per_trial or hardware.cpus)
            return options.memory_limit_bytes or hardware.host_memory_bytes // max(1, beside)
        return int(hardware.device_bytes * (self._gpu_memory_fraction or 1))

    @property
    def _gpu_memory_fraction(self) -> float | None:
        """The share of a GPU's memory that a trial's tensors may take; None where it has the GPU to itself.

        Every process holds a CUDA context besides, which the cap does not count and the neighbours need room
        for.
        """
        gpus, device_bytes = self.options.gpus_per_trial, self.hardware.device_bytes
        if not 0 < gpus < 1 or not device_bytes:
            return None
        return max(gpus / 2, gpus - _CUDA_CONTEXT_BYTES / device_bytes)

    def _training(self, space: Space) -> Training:
        return Training(space, self.workload, self.hardware, self.options)

    def order(self, trial: Trial) -> Order:
        """What a supervisor needs to run `trial`.

        A repeat has a seed of its round's, and a confirming one the device to itself, as an ablation step
        has. Only a trial of a new configuration can be beaten, a step included: its speed is known by then.
        The others are there to be measured to the end.
        """
        place, goal = self.session.trial_dir(trial.number), self.space.objective
        alone = self._training(self.space).order(
            trial.config, place, number=trial.number, seed=confirm.seed_of(trial)
        )
        fraction = None if confirm.is_alone(trial) else self._gpu_memory_fraction
        device_bytes = self.hardware.device_bytes
        can_be_beaten = trial.number > 0 and trial.repeat is None
        is_pilot = trial.number == 0 or (trial.repeat is not None and trial.repeat.round == 0)
        races_to_target = goal.target is not None and not is_pilot
        learns_on = trial.number == 0 and self.space.budget.until_learnt
        return replace(
            alone,
            samples=alone.samples * (_TIMES_TO_TARGET if races_to_target else 1),
            gpu_memory_fraction=fraction,
            device_memory_bytes=int(device_bytes * (fraction or 1)) if device_bytes else None,
            target=goal.target if races_to_target else None,
            until_learnt=_FEWEST_EVALUATIONS if learns_on else 0,
            until_timed=objective.ends_once_timed(trial, goal),
            threshold_file=str(self.session.threshold_file) if can_be_beaten else None,
            keep_work=self.options.keep_checkpoints,
            stop_file=str(self.session.stop_file),
            card=self.session.card(trial),
        )

    def race(self, trial: Trial, members: Sequence[Trial]) -> RaceOrder:
        """What a supervisor needs to run the race `trial` between the settings of `members`.

        Each has the settings of its trial, its seed too, and the device to itself; it is not evaluated. All
        are alive at once where there is room for that.
        """
        budget = self.space.budget.model_copy(
            update={"samples_per_trial": _NEVER, "evaluations_per_trial": 1}
        )
        endless = self._training(self.space.model_copy(update={"budget": budget}))
        place, together = self.session.trial_dir(trial.number), self._fit_together(members)
        return RaceOrder(
            number=trial.number,
            directory=str(place.root),
            members=tuple(endless.order(m.config, place.member(m.number), number=m.number) for m in members),
            together=together,
            most_s=racing.most_s(t.seconds for t in members) if together else _RACE_APART_S,
            stop_file=str(self.session.stop_file),
            card=self.session.card(trial),
        )

    def _fit_together(self, members: Sequence[Trial]) -> bool:
        """Whether all members of a race can be held in memory at once, by the peaks that they had as trials.

        What is too little to be measured as a peak was still seen from outside, with all that it shares. A
        GPU in exclusive compute mode holds one at a time.
        """
        if any(gpu.exclusive for gpu in self.hardware.gpus):
            return False
        peaks = [
            trial.measurement.peak_memory_bytes or trial.measurement.telemetry.get("host_rss_bytes")
            for trial in members
        ]
        room_bytes = self._race_room_bytes(len(members))
        return None not in peaks and sum(peak or 0 for peak in peaks) <= _ROOM_SHARE * room_bytes

    def _race_room_bytes(self, members: int) -> int:
        """The memory that the members of a race share: the GPU's without their contexts, or the host's.

        A limit of the host's memory is each trial's own, and says nothing about several.
        """
        if self.hardware.device_bytes is None:
            return self.hardware.host_memory_bytes
        return max(0, self.hardware.device_bytes - members * _CUDA_CONTEXT_BYTES)
