"""A trial of a search as an order to run it: plain values, for a supervisor on whatever machine."""

from collections.abc import Sequence
from dataclasses import replace

from autotune import confirm
from autotune.attempt import Order
from autotune.race import RaceOrder
from autotune.space import Space
from autotune.store import Options, Session
from autotune.telemetry import Hardware
from autotune.trial import Trial
from autotune.workloads import Workload

_TIMES_TO_TARGET = 8  # as many samples as the baseline's: before that, time ends who cannot win
_FEWEST_EVALUATIONS = 4  # before which nothing is called learnt
_CUDA_CONTEXT_BYTES = 600 * 2**20  # kernels and cuBLAS workspace; an estimate, not measured
RACE_APART_S = 1800.0  # where every turn has a start before it
_ROOM_SHARE = 0.9  # of the memory: a peak is not the same in every run
_NEVER = 2**31  # samples: no evaluation falls into a race


def order(
    trial: Trial, session: Session, space: Space, workload: Workload, device_bytes: int | None
) -> Order:
    """What a supervisor needs to run `trial` on a device with so much memory.

    A repeat has a seed of its round's, and a confirming one the device to itself, as an ablation step has.
    Only a trial of a new configuration can be beaten, a step included: its speed is known by then. The others
    are there to be measured to the end.
    """
    options, budget, goal = session.options(), space.budget, space.objective
    fraction = None if confirm.is_alone(trial) else gpu_memory_fraction(options.gpus_per_trial, device_bytes)
    settings = workload.with_seed(space.settings(trial.config), confirm.seed_of(trial))
    can_be_beaten = trial.number > 0 and trial.repeat is None
    is_pilot = trial.number == 0 or (trial.repeat is not None and trial.repeat.round == 0)
    races_to_target = goal.target is not None and not is_pilot
    learns_on = trial.number == 0 and budget.until_learnt
    return Order(
        number=trial.number,
        entry_point=workload.entry_point,
        settings=workload.for_trial(
            settings, budget.samples_per_trial, budget.evaluations_per_trial, goal.quality
        ),
        directory=str(session.trial_dir(trial.number)),
        quality=goal.quality,
        samples=budget.samples_per_trial * (_TIMES_TO_TARGET if races_to_target else 1),
        memory_limit_bytes=options.memory_limit_bytes,
        gpu_memory_fraction=fraction,
        device_memory_bytes=int(device_bytes * (fraction or 1)) if device_bytes else None,
        stall_timeout_s=options.stall_timeout_s,
        target=goal.target if races_to_target else None,
        until_learnt=_FEWEST_EVALUATIONS if learns_on else 0,
        threshold_file=str(session.threshold_file) if can_be_beaten else None,
        revision=workload.revision(),
        keep_work=options.keep_checkpoints,
    )


def race_order(
    trial: Trial,
    members: Sequence[Trial],
    session: Session,
    space: Space,
    workload: Workload,
    *,
    device_bytes: int | None,
    together: bool,
    most_s: float,
) -> RaceOrder:
    """What a supervisor needs to run the race `trial` between the settings of `members`.

    Each has the settings of its trial, its seed too, and the device to itself; it is not evaluated.
    """
    budget = space.budget.model_copy(update={"samples_per_trial": _NEVER, "evaluations_per_trial": 1})
    endless = space.model_copy(update={"budget": budget})
    directory = session.trial_dir(trial.number)

    def member(of: Trial) -> Order:
        alone = order(Trial(of.number, of.config), session, endless, workload, device_bytes)
        return replace(
            alone,
            directory=str(directory / f"member-{of.number}"),
            gpu_memory_fraction=None,
            device_memory_bytes=device_bytes,
            target=None,
            threshold_file=None,
            keep_work=False,
        )

    return RaceOrder(
        number=trial.number,
        directory=str(directory),
        members=tuple(member(of) for of in members),
        together=together,
        most_s=most_s,
    )


def race_room(hardware: Hardware, members: int) -> int:
    """The memory that the members of a race share: the GPU's without their contexts, or the host's.

    A limit of the host's memory is each trial's own, and says nothing about several.
    """
    device_bytes = min((gpu.memory_bytes for gpu in hardware.gpus), default=None)
    if device_bytes is None:
        return hardware.host_memory_bytes
    return max(0, device_bytes - members * _CUDA_CONTEXT_BYTES)


def fit_together(members: Sequence[Trial], limit_bytes: int | None) -> bool:
    """Whether all members of a race can be held in memory at once, by the peaks that they had as trials.

    What is too little to be measured as a peak was still seen from outside, with all that it shares.
    """
    if limit_bytes is None:
        return True
    peaks = [
        trial.measurement.peak_memory_bytes or trial.measurement.telemetry.get("host_rss_bytes")
        for trial in members
    ]
    return None not in peaks and sum(peak or 0 for peak in peaks) <= _ROOM_SHARE * limit_bytes


def memory_limit(options: Options, hardware: Hardware) -> int:
    """What a trial of the search may take: of its GPU, or of the host where it has none."""
    device_bytes = min((gpu.memory_bytes for gpu in hardware.gpus), default=None)
    if device_bytes is None:
        beside = hardware.cpus // (options.cpus_per_trial or hardware.cpus)
        return options.memory_limit_bytes or hardware.host_memory_bytes // max(1, beside)
    return int(device_bytes * (gpu_memory_fraction(options.gpus_per_trial, device_bytes) or 1))


def gpu_memory_fraction(gpus: float, device_bytes: int | None) -> float | None:
    """The share of a GPU's memory that a trial's tensors may take; None where it has the GPU to itself.

    Every process holds a CUDA context besides, which the cap does not count and the neighbours need room for.
    """
    if not 0 < gpus < 1 or not device_bytes:
        return None
    return max(gpus / 2, gpus - _CUDA_CONTEXT_BYTES / device_bytes)
