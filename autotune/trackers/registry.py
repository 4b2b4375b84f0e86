"""The trackers by name, for searches and trainings alike; a tracker is imported only if it is on."""

import logging
from collections.abc import Sequence
from importlib import import_module, util

from autotune.core.errors import InputError
from autotune.storage.store import StoredSession
from autotune.trackers.tracker import Context, session_tags
from autotune.trackers.tracking import Trackers
from autotune.workloads import registry

logger = logging.getLogger(__name__)

_KNOWN = {  # module and class; TensorBoard is always on, and W&B has an option for its mode
    "tensorboard": "autotune.trackers.tensorboard:TensorBoard",
    "wandb": "autotune.trackers.wandb:Wandb",
    "mlflow": "autotune.trackers.mlflow:Mlflow",
}
OPTIONAL = tuple(_KNOWN)[2:]  # values of --tracker; each is named like the package that it needs


def check(asked: Sequence[str]) -> tuple[str, ...]:
    """Returns the values of --tracker; raises InputError for an unknown tracker and a missing package."""
    for name in asked:
        if name not in OPTIONAL:
            raise InputError(f"--tracker: must be one of {', '.join(OPTIONAL)}, got {name!r}")
        if util.find_spec(name) is None:
            install = f"pip install 'autotune-r2gen[{name}]'"
            raise InputError(f"--tracker {name}: {name} is not installed: {install}")
    return tuple(dict.fromkeys(asked))


def open_session(session: StoredSession) -> Trackers:
    space, options = session.space(), session.options()
    device = str(session.provenance().get("device") or "")
    context = Context(
        session,
        session.name,
        space.metric,
        session_tags(registry.label(space.workload), device, options.tags),
        tuple(space.knobs),
        options.wandb,
    )
    return open_trackers(context, options.trackers)


def open_trackers(context: Context, asked: Sequence[str] = ()) -> Trackers:
    """Returns TensorBoard, W&B unless it is off, and the `asked` trackers; warns if one is not installed."""
    trackers = {}
    for name in ("tensorboard", *(["wandb"] if context.wandb != "off" else ()), *asked):
        module, _, tracker = _KNOWN[name].partition(":")
        try:
            trackers[name] = getattr(import_module(module), tracker)(context)
        except ImportError as error:
            logger.warning("%s: %s; the %s continues", name, error, context.kind)
    return Trackers(trackers, context.kind)
