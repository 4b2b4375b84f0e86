"""The common configuration of a search's trials, and the only builder of their orders."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import psutil

from autotune.core.settings import LENGTH, Config, Setting
from autotune.core.trial import Trial, TrialKind
from autotune.inside import stop_request
from autotune.judging.accounts import overhead
from autotune.judging.decisions import objective, racing
from autotune.memory import room
from autotune.space import configurations, lengths
from autotune.space.space import Space
from autotune.storage.layout import TrialDir
from autotune.storage.store import Options, StoredSession
from autotune.system.telemetry import Hardware
from autotune.trials.order import NEVER, Ends, Order, RaceOrder, Racer, TrialLimits
from autotune.workloads.base import Workload

TIMES_TO_TARGET = 8  # as many samples as the baseline; a trial that cannot win is beaten on time before that


@dataclass(frozen=True)
class TrainingSetup:
    """A workload, a space of settings, and the hardware and options to train with."""

    space: Space
    workload: Workload
    hardware: Hardware
    options: Options
    context_bytes: int = room.CONTEXT_BYTES  # GPU memory of a process besides its tensors

    def on_gpu(self, order: Order, config: Config, gpus: float) -> Order:
        """Returns `order`, a trial of `config`, with `gpus` GPUs; below 1 a share of one."""
        limit_bytes = self.gpu_limit_bytes(gpus)
        if limit_bytes is None:
            return order
        cap_bytes: int | None = int(self.space.limits.memory_fraction * limit_bytes)
        if config == self.space.baseline_config:  # it has to run, as it does today
            left_bytes = room.beside_context(self._share_bytes(gpus), self.context_bytes)
            cap_bytes = int(left_bytes) if gpus < 1 else None  # what its neighbours leave
        limits = replace(order.limits, gpus=gpus, device_bytes=limit_bytes, allocator_bytes=cap_bytes)
        return replace(order, limits=limits)

    def gpu_limit_bytes(self, gpus: float) -> int | None:
        """Returns the memory limit of a trial on each of its `gpus`, below 1 a share; None without a GPU."""
        if not self.hardware.gpus:
            return None
        fraction = self.space.limits.memory_fraction
        return room.limit_bytes(self._share_bytes(gpus), self.context_bytes, fraction)

    def _share_bytes(self, gpus: float) -> float:
        return min(1.0, gpus) * (self.hardware.free_device_bytes or 0)

    def order(
        self,
        config: Config,
        place: TrialDir,
        *,
        number: int = 0,
        seed: int = 0,
        samples: int | None = None,
        evaluations: int | None = None,
    ) -> Order:
        """Returns the order to train `config` for all samples of its trial, with a device to itself.

        `seed` is added to the seed in the settings. `samples` and `evaluations` replace the budget's values;
        a planned length stays.
        """
        samples = self.space.samples(config, samples)
        settings = self.workload.for_trial(
            self.workload.with_seed(self.space.settings(config), seed),
            samples,
            evaluations or self.space.budget.evaluations_per_trial,
            self.space.objective.quality,
        )
        given = configurations.for_trial(self.space, settings, samples, evaluations)
        ends = Ends(samples, planned=LENGTH in self.space.knobs)
        order = replace(self._base_order(config, place, settings, given, ends), number=number)
        return self.on_gpu(order, config, math.ceil(self.options.gpus_per_trial) or 1.0)

    def training_samples(self, config: Config) -> int | None:
        """Returns the samples of the whole training with the length in `config`; None if they are unknown."""
        space = self.space
        share = space.samples(config) / space.budget.samples_per_trial if LENGTH in space.knobs else 1.0
        return round(share * space.training.samples) if space.training.samples else None

    def whole_training(self, config: Config, place: TrialDir) -> Order:
        """Returns the order to train `config` to its own end, evaluating at its own cadence, without caps.

        Raises InputError if the workload cannot do that.
        """
        space = self.space
        samples = self.training_samples(config)
        settings = self.workload.for_training(space.settings(config), samples)
        gpus = float(math.ceil(self.options.gpus_per_trial))
        given = configurations.for_workload(self.space, settings)
        ends = Ends(0 if self.workload.ends_itself else samples or 0)
        limits = TrialLimits(
            gpus=gpus,
            device_bytes=self.hardware.free_device_bytes if gpus else None,
            stall_timeout_s=self.options.stall_timeout_s,
            closing_s=stop_request.WHOLE_CLOSING_S,
        )
        order = self._base_order(config, place, settings, given, ends)
        return replace(order, limits=limits, whole=True)

    def _base_order(
        self, config: Config, place: TrialDir, settings: dict[str, Setting], given: dict[str, Any], ends: Ends
    ) -> Order:
        return Order(
            number=0,
            workload=self.workload.value,
            settings=settings,
            given=given,
            directory=str(place.root),
            ends=ends,
            limits=TrialLimits(
                host_bytes=self.options.memory_limit_bytes, stall_timeout_s=self.options.stall_timeout_s
            ),
            revision=self.workload.revision(),
            metric=self.space.metric_of(config),
        )


@dataclass(frozen=True)
class Setup:
    """The session, space, workload and hardware of a search."""

    session: StoredSession
    space: Space
    workload: Workload
    hardware: Hardware
    context_bytes: int = room.CONTEXT_BYTES

    @cached_property
    def options(self) -> Options:
        return self.session.options()

    @property
    def memory_limit_bytes(self) -> int:
        """The memory limit of a trial: on its GPU, or on the host if it has none."""
        hardware, options = self.hardware, self.options
        limit_bytes = self._training.gpu_limit_bytes(options.gpus_per_trial)
        if limit_bytes is not None:
            return limit_bytes
        concurrent = hardware.cpus // (options.cpus_per_trial or hardware.cpus)
        return options.memory_limit_bytes or hardware.host_memory_bytes // max(1, concurrent)

    @property
    def _training(self) -> TrainingSetup:
        return TrainingSetup(self.space, self.workload, self.hardware, self.options, self.context_bytes)

    def order(self, trial: Trial) -> Order:
        """Returns the order to run `trial`; all but the baseline, pilots and repeats can be stopped early."""
        place, goal = self.session.trial_dir(trial.number), self.space.objective
        training, gpus = self._training, self.options.gpus_per_trial
        order = training.order(trial.config, place, number=trial.number, seed=trial.seed)
        if 0 < gpus < 1 and not trial.runs_alone:
            order = training.on_gpu(order, trial.config, gpus)
        # Ablation steps too: their speed is known by then. All others are measured to the end.
        can_be_beaten = trial.number > 0 and trial.kind not in (TrialKind.PILOT, TrialKind.SEED)
        is_pilot = trial.number == 0 or trial.kind is TrialKind.PILOT
        races_to_target = goal.target is not None and not is_pilot
        # A training of a planned length ends by itself.
        may_go_on = races_to_target and LENGTH not in self.space.knobs
        learns_on = trial.number == 0 and self.space.budget.until_learnt
        return replace(
            order,
            ends=replace(
                order.ends,
                samples=self.space.samples(trial.config) * (TIMES_TO_TARGET if may_go_on else 1),
                target=goal.aim if races_to_target else None,
                until_learnt=4 if learns_on else 0,  # evaluations, before a trial can count as having learnt
                until_timed=objective.ends_once_timed(trial, goal),
            ),
            threshold_file=str(self.session.threshold_file) if can_be_beaten else None,
            keep_work=self.options.keep_checkpoints,
            stop_file=str(self.session.stop_file),
            identity=self.session.identity_of(trial),
        )

    def race(self, trial: Trial, members: Sequence[Trial]) -> RaceOrder:
        """Returns the order to race the settings of `members`, as the race `trial`."""
        place, together = self.session.trial_dir(trial.number), self._fit_together(members)
        orders = []
        for member in members:
            longer = lengths.endless(self.space, member.config, 20)  # a race lasts at most four trials
            files, number = place.member(member.number), member.number
            # No member is evaluated: the cost of evaluations in its trial is added if it counts.
            order = self._training.order(longer, files, number=number, samples=NEVER, evaluations=1)
            orders.append(replace(order, ends=Ends(NEVER)))
        if together and self.hardware.gpus:
            orders = self._capped_together(orders, members)
        return RaceOrder(
            number=trial.number,
            directory=str(place.root),
            members=tuple(
                Racer(order, self.space.samples(member.config), *overhead.in_race(member, self.space))
                for order, member in zip(orders, members, strict=True)
            ),
            together=together,
            # If every turn starts a process, half an hour.
            most_s=racing.most_s(t.seconds for t in members) if together else 1800.0,
            trials_s=max(t.seconds for t in members),
            stop_file=str(self.session.stop_file),
            identity=self.session.identity_of(trial),
        )

    def _fit_together(self, members: Sequence[Trial]) -> bool:
        """Returns True if all members fit into memory at once, judged by their peaks as trials."""
        if any(gpu.exclusive for gpu in self.hardware.gpus):
            return False
        peaks = [_held_bytes(trial) for trial in members]
        room_bytes = 0.9 * self._race_room_bytes(members)  # because peaks vary between runs
        return None not in peaks and sum(peak or 0 for peak in peaks) <= room_bytes

    def _capped_together(self, orders: Sequence[Order], members: Sequence[Trial]) -> list[Order]:
        """Returns the orders of members that share a GPU, each capped in proportion to its known peak."""
        peaks, room_bytes = [_held_bytes(trial) or 0 for trial in members], self._race_room_bytes(members)
        capped = []
        for order, peak in zip(orders, peaks, strict=True):
            cap_bytes = int(room_bytes * peak / sum(peaks))
            limits = order.limits
            gpus = limits.gpus if limits.gpus > 1 else limits.gpus / len(orders)
            cap_bytes = min(cap_bytes, limits.allocator_bytes or cap_bytes)
            capped.append(replace(order, limits=replace(limits, gpus=gpus, allocator_bytes=cap_bytes)))
        return capped

    def _race_room_bytes(self, members: Sequence[Trial]) -> int:
        """Returns the memory that the members share: of the GPU, less their contexts, or of the host."""
        if self.hardware.free_device_bytes is None:
            # A limit holds for each trial by itself. Other programs have their memory; no trial runs beside.
            free_bytes = math.inf if self.session.cluster else psutil.virtual_memory().available
            return int(min(self.hardware.host_memory_bytes, free_bytes))
        contexts_bytes = sum(trial.measurement.context_bytes or self.context_bytes for trial in members)
        return max(0, self.hardware.free_device_bytes - contexts_bytes)


def _held_bytes(trial: Trial) -> int | None:
    """Returns the peak memory of a trial; on a GPU, it includes memory that the allocator only cached."""
    m = trial.measurement
    seen_bytes = m.telemetry.get("host_rss_bytes")  # in place of a peak too small to measure
    return m.peak_reserved_bytes or m.peak_memory_bytes or (int(seen_bytes) if seen_bytes else None)
