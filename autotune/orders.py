"""A trial of a search as an order to run it: plain values, for a supervisor on whatever machine."""

from autotune import confirm
from autotune.attempt import Order
from autotune.space import Space
from autotune.store import Options, Session
from autotune.telemetry import Hardware
from autotune.trial import Trial
from autotune.workloads import Workload

_CUDA_CONTEXT_BYTES = 600 * 2**20  # kernels and cuBLAS workspace; an estimate, not measured


def order(
    trial: Trial, session: Session, space: Space, workload: Workload, device_bytes: int | None
) -> Order:
    """What a supervisor needs to run `trial` on a device with so much memory.

    A repeat has a seed of its round's, and a confirming one the device to itself, as a step of the way has.
    Only a trial of a new configuration can be beaten, a step included: its speed is known by then. The others
    are there to be measured to the end.
    """
    options, budget, goal = session.options(), space.budget, space.objective
    fraction = None if confirm.is_alone(trial) else gpu_memory_fraction(options.gpus_per_trial, device_bytes)
    settings = workload.with_seed(space.settings(trial.config), confirm.seed_of(trial))
    can_be_beaten = trial.number > 0 and trial.repeat is None
    return Order(
        number=trial.number,
        entry_point=workload.entry_point,
        settings=workload.for_trial(
            settings, budget.samples_per_trial, budget.evaluations_per_trial, goal.quality
        ),
        directory=str(session.trial_dir(trial.number)),
        quality=goal.quality,
        samples=budget.samples_per_trial,
        memory_limit_bytes=options.memory_limit_bytes,
        gpu_memory_fraction=fraction,
        device_memory_bytes=int(device_bytes * (fraction or 1)) if device_bytes else None,
        stall_timeout_s=options.stall_timeout_s,
        target=goal.target,
        bar_file=str(session.bar_file) if can_be_beaten else None,
        revision=workload.revision(),
        keep_work=options.keep_checkpoints,
    )


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
