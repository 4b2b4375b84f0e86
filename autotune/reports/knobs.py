"""Peak memory by the knobs, as the model predicts it. Pure."""

from autotune.core.settings import PRECISION, Config
from autotune.judging.decisions.history import History
from autotune.memory.feasibility import MemoryModel
from autotune.reports.model import Predicted
from autotune.space import following
from autotune.space.space import Space


def predicted(config: Config, history: History, memory_limit_bytes: int | None) -> tuple[Predicted, ...]:
    """Peak memory with each precision and micro-batch to choose from, at the other settings of `config`."""
    space, fraction = history.space, history.space.limits.memory_fraction
    model = MemoryModel(history.trials, fraction=fraction, limit_bytes=memory_limit_bytes, known=space.known)
    knob = space.drawn_knobs.get(PRECISION)
    precisions = (knob.drawn_from.choice if knob else None) or ()
    configs: list[Config] = [{**config, PRECISION: precision} for precision in precisions] or [config]
    found = [_predicted(model, chosen, space) for chosen in configs]
    return tuple(p for p in found if p.micro_batch_size)


def _predicted(model: MemoryModel, config: Config, space: Space) -> Predicted:
    sizes = space.micro_batch_sizes
    told = [(size, model.predict(following.resized(space, config, size))) for size in sizes]
    known = [(size, found) for size, found in told if found is not None]
    return Predicted(
        precision=str(config.get(PRECISION, "")),
        micro_batch_size=tuple(size for size, _ in known),
        peak_bytes=tuple(found.expected_bytes for _, found in known),
        low_bytes=tuple(found.low_bytes for _, found in known),
        high_bytes=tuple(found.high_bytes for _, found in known),
    )
