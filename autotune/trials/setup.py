"""What the trials of a search have in common; the only builder of the orders to run them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from autotune.core.settings import LENGTH, Config, Setting
from autotune.core.trial import Trial, TrialKind
from autotune.judging import objective, outside, racing
from autotune.memory import room
from autotune.space import evaluating, lengths
from autotune.space.space import Space
from autotune.storage.store import Options, Session
from autotune.storage.trial_dir import TrialDir
from autotune.system.telemetry import Hardware
from autotune.trials.order import Order, RaceOrder
from autotune.workloads.base import Workload

_TIMES_TO_TARGET = 8  # as many samples as the baseline's: before that, time ends a trial that cannot win
_FEWEST_EVALUATIONS = 4  # before which nothing is called learnt
_RACE_APART_S = 1800.0  # where every turn has a start before it
_ROOM_SHARE = 0.9  # of the memory: a peak is not the same in every run
_NEVER = 2**31  # samples: no evaluation falls into a race
_TIMES_IN_RACE = 20  # the length of a training, which a race does not last: at most four times a trial


@dataclass(frozen=True)
class Training:
    """What is trained, and what it may take: a workload with settings of a space, on this hardware.

    `context_bytes` is what a process takes of its GPU besides its tensors.
    """

    space: Space
    workload: Workload
    hardware: Hardware
    options: Options
    context_bytes: int = room.CONTEXT_BYTES

    def on_gpu(self, order: Order, config: Config, gpus: float) -> Order:
        """`order` of a trial of `config`, with a share of a GPU where `gpus` is less than one.

        The allocator is limited to `memory_fraction` of what the trial may take. Not the baseline's: it is
        what is run today, and has to run. It is limited to what its neighbours leave, and not at all without
        any.
        """
        limit_bytes = self.gpu_limit_bytes(gpus)
        if limit_bytes is None:
            return order
        cap_bytes: int | None = int(self.space.limits.memory_fraction * limit_bytes)
        if config == self.space.baseline_config:
            cap_bytes = int(self._beside_context(gpus)) if gpus < 1 else None
        return replace(order, gpus=gpus, device_memory_bytes=limit_bytes, memory_cap_bytes=cap_bytes)

    def gpu_limit_bytes(self, gpus: float) -> int | None:
        """What a trial may take of each of its `gpus`, a part of one below 1; None where there is none.

        That is its share of what others leave, and less where the context needs it.
        """
        if not self.hardware.gpus:
            return None
        fraction = self.space.limits.memory_fraction
        return room.limit_bytes(self._share_bytes(gpus), self.context_bytes, fraction)

    def _share_bytes(self, gpus: float) -> float:
        return min(1.0, gpus) * (self.hardware.free_device_bytes or 0)

    def _beside_context(self, gpus: float) -> float:
        return room.beside_context(self._share_bytes(gpus), self.context_bytes)

    def order(self, config: Config, place: TrialDir, *, number: int = 0, seed: int = 0) -> Order:
        """The order to train `config` over all samples of its trial, with a device to itself.

        `seed` is added to the settings' own.
        """
        budget, goal, samples = self.space.budget, self.space.objective, self.space.samples(config)
        settings = self.workload.for_trial(
            self.workload.with_seed(self.space.settings(config), seed),
            samples,
            budget.evaluations_per_trial,
            goal.quality,
        )
        order = replace(
            self._made(config, place, settings, self.space.for_trial(settings)),
            number=number,
            samples=samples,
            planned=LENGTH in self.space.knobs,
            memory_limit_bytes=self.options.memory_limit_bytes,
        )
        return self.on_gpu(order, config, math.ceil(self.options.gpus_per_trial) or 1.0)

    def whole(self, config: Config, place: TrialDir) -> Order:
        """The order to train with `config` to the training's own end, at its own cadence.

        Nothing is capped, since nothing runs alongside it. Raises InputError where that cannot be done.
        """
        space = self.space
        share = space.samples(config) / space.budget.samples_per_trial if LENGTH in space.knobs else 1.0
        samples = round(share * space.training.samples) if space.training.samples else None
        settings = self.workload.for_training(space.settings(config), samples)
        gpus = float(math.ceil(self.options.gpus_per_trial))
        return replace(
            self._made(config, place, settings, self.space.for_workload(settings)),
            samples=0 if self.workload.ends_itself else samples or 0,
            gpus=gpus,
            device_memory_bytes=self.hardware.free_device_bytes if gpus else None,
            whole=True,
        )

    def _made(
        self, config: Config, place: TrialDir, settings: dict[str, Setting], given: dict[str, Any]
    ) -> Order:
        """What every order has; 0 samples until they are set."""
        return Order(
            number=0,
            workload=self.workload.value,
            settings=settings,
            given=given,
            directory=str(place.root),
            samples=0,
            stall_timeout_s=self.options.stall_timeout_s,
            revision=self.workload.revision(),
            **asdict(evaluating.counting(self.space, config)),
        )


@dataclass(frozen=True)
class Setup:
    """What the trials of a session are: of which space and workload, on what hardware."""

    session: Session
    space: Space
    workload: Workload
    hardware: Hardware
    context_bytes: int = room.CONTEXT_BYTES

    @cached_property
    def options(self) -> Options:
        return self.session.options()

    @property
    def memory_limit_bytes(self) -> int:
        """What a trial of the search may take: of its GPU, or of the host where it has none."""
        hardware, options = self.hardware, self.options
        limit_bytes = self._training(self.space).gpu_limit_bytes(options.gpus_per_trial)
        if limit_bytes is not None:
            return limit_bytes
        beside = hardware.cpus // (options.cpus_per_trial or hardware.cpus)
        return options.memory_limit_bytes or hardware.host_memory_bytes // max(1, beside)

    def _training(self, space: Space) -> Training:
        return Training(space, self.workload, self.hardware, self.options, self.context_bytes)

    def order(self, trial: Trial) -> Order:
        """What a supervisor needs to run `trial`.

        A repeat has a seed of its round's, and a confirming one the device to itself, as an ablation step
        has. Only a trial of a new configuration can be beaten, a step included: its speed is known by then.
        The others are measured to the end.
        """
        place, goal = self.session.trial_dir(trial.number), self.space.objective
        training, gpus = self._training(self.space), self.options.gpus_per_trial
        order = training.order(trial.config, place, number=trial.number, seed=trial.seed)
        if 0 < gpus < 1 and not trial.runs_alone:
            order = training.on_gpu(order, trial.config, gpus)
        can_be_beaten = trial.number > 0 and trial.kind not in (TrialKind.PILOT, TrialKind.SEED)
        is_pilot = trial.number == 0 or trial.kind is TrialKind.PILOT
        races_to_target = goal.target is not None and not is_pilot
        learns_on = trial.number == 0 and self.space.budget.until_learnt
        return replace(
            order,
            samples=order.samples * (_TIMES_TO_TARGET if races_to_target else 1),
            target=goal.aim if races_to_target else None,
            until_learnt=_FEWEST_EVALUATIONS if learns_on else 0,
            until_timed=objective.ends_once_timed(trial, goal),
            threshold_file=str(self.session.threshold_file) if can_be_beaten else None,
            keep_work=self.options.keep_checkpoints,
            stop_file=str(self.session.stop_file),
            card=self.session.card(trial),
        )

    def race(self, trial: Trial, members: Sequence[Trial]) -> RaceOrder:
        """What a supervisor needs to run the race `trial` between the settings of `members`.

        Each has the settings of its trial, its seed too, and the device to itself; it is not evaluated: what
        its trial has shown of that is added where it counts. All are alive at once where there is room.
        """
        place, together = self.session.trial_dir(trial.number), self._fit_together(members)
        orders = [
            replace(
                self._endless(m, place.member(m.number)),
                **asdict(outside.in_race(m, self.space)),
            )
            for m in members
        ]
        return RaceOrder(
            number=trial.number,
            directory=str(place.root),
            members=tuple(self._capped_together(orders, members) if together else orders),
            lengths=tuple(self.space.samples(member.config) for member in members),
            together=together,
            most_s=racing.most_s(t.seconds for t in members) if together else _RACE_APART_S,
            stop_file=str(self.session.stop_file),
            card=self.session.card(trial),
        )

    def _endless(self, member: Trial, place: TrialDir) -> Order:
        """The order to train a member of a race, with no evaluation, and no end before that of the race."""
        longer = lengths.endless(self.space, member.config, _TIMES_IN_RACE)
        changes = {"evaluations_per_trial": 1}
        if longer is member.config:
            changes["samples_per_trial"] = _NEVER
        budget = self.space.budget.model_copy(update=changes)
        training = self._training(self.space.model_copy(update={"budget": budget}))
        return replace(training.order(longer, place, number=member.number), samples=_NEVER)

    def _fit_together(self, members: Sequence[Trial]) -> bool:
        """Whether all members of a race can be held in memory at once, by the peaks that they had as trials.

        What is too little to be measured as a peak was still seen from outside, with all that it shares. A
        GPU in exclusive compute mode holds one at a time.
        """
        if any(gpu.exclusive for gpu in self.hardware.gpus):
            return False
        peaks = [_held_bytes(trial) for trial in members]
        room_bytes = self._race_room_bytes(members)
        return None not in peaks and sum(peak or 0 for peak in peaks) <= _ROOM_SHARE * room_bytes

    def _capped_together(self, orders: Sequence[Order], members: Sequence[Trial]) -> list[Order]:
        """The orders of members that share a GPU at once: none takes what another one is known to hold."""
        if not self.hardware.gpus:
            return list(orders)
        held, room_bytes = [_held_bytes(trial) or 0 for trial in members], self._race_room_bytes(members)
        capped = []
        for order, mine in zip(orders, held, strict=True):
            cap_bytes = int(room_bytes * mine / sum(held))
            gpus = order.gpus if order.gpus > 1 else order.gpus / len(orders)
            cap_bytes = min(cap_bytes, order.memory_cap_bytes or cap_bytes)
            capped.append(replace(order, gpus=gpus, memory_cap_bytes=cap_bytes))
        return capped

    def _race_room_bytes(self, members: Sequence[Trial]) -> int:
        """The memory that the members of a race share: the GPU's without their contexts, or the host's.

        A limit of the host's memory is each trial's own, and says nothing about several.
        """
        if self.hardware.free_device_bytes is None:
            return self.hardware.host_memory_bytes
        beside_bytes = sum(trial.measurement.context_bytes or self.context_bytes for trial in members)
        return max(0, self.hardware.free_device_bytes - beside_bytes)


def _held_bytes(trial: Trial) -> int | None:
    """What a trial was seen to hold at most, on a GPU what its allocator had only cached included."""
    shown = trial.measurement
    seen_bytes = shown.telemetry.get("host_rss_bytes")
    return shown.peak_reserved_bytes or shown.peak_memory_bytes or (int(seen_bytes) if seen_bytes else None)
