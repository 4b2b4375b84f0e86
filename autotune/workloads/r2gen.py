"""R2Gen as a workload; the only module of the tuner that imports the trainer."""

import math
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from autotune.core.errors import InputError, did_you_mean
from autotune.core.settings import COMPILE, FOR_CUDA, KnownSetting, Needs, Result, Setting, result_setting
from autotune.core.shell import quoted
from autotune.workloads.base import Cadence, OwnFile, OwnSection, Workload
from r2gen import config as trainer
from r2gen import errors

# Small and without dropout: learns to describe the synthetic data within 2,000 samples.
_SMALL: dict[str, Setting] = {
    "visual_extractor": "small",
    "image_size": 64,
    "d_model": 64,
    "d_ff": 128,
    "num_layers": 1,
    "num_heads": 4,
    "rm_num_heads": 4,
    "dropout": 0.0,
    "drop_prob_lm": 0.0,
}
# Optimizer settings, which do not change the time or memory of a step.
_OPTIMIZER = (
    *("grad_clip_value", "lr_gamma", "lr_step_epochs", "visual_learning_rate_ratio"),
    *("schedule", "warmup_samples"),
)
_BENCHMARK = KnownSetting(
    "cudnn_benchmark", "the algorithm alone", moves_result=Result.REORDERED, needs={True: FOR_CUDA}
)
_ON_GPU: dict[Setting, Needs] = {"cuda-graphs": Needs(cuda=True)}
_GRAPHS = KnownSetting(COMPILE, "left out without a GPU", moves_result=Result.REORDERED, needs=_ON_GPU)
_EVALUATED = "eval_every_samples"
_STUDIES = {"train": 256, "val": 64, "test": 64}
_BLEU = tuple(f"bleu_{n}" for n in range(1, 5))
_SCORES = (*_BLEU, "rouge_l", "cider", "meteor", *(f"full_{name}" for name in _BLEU))
_LOSS = "val_loss"
_OF_REFERENCES = {"max_seq_length", "min_word_count"}
_FULL: dict[str, Setting] = {
    name: trainer.Config.model_fields[name].default for name in (*_SMALL, "rm_num_slots", "max_seq_length")
}


@contextmanager
def _as_ours(config: str = "config:") -> Iterator[None]:
    """Raises an InputError of the trainer as one of the tuner, whose text begins with `config`."""
    try:
        yield
    except errors.InputError as error:
        raise InputError(str(error).replace("config:", config, 1)) from None


def _between_evaluations(settings: Mapping[str, Setting], epoch: int | None) -> int | None:
    interval = settings.get(_EVALUATED)
    return interval if isinstance(interval, int) else epoch


class R2GenProgram:
    def evaluate(self, workdir: Path, settings: Mapping[str, Setting], reports: Path) -> list[str]:
        program = [sys.executable, "-m", "r2gen", "evaluate", "--checkpoint", str(workdir / "best.pt")]
        return [*program, "--data", str(settings["data"]), "--reports", str(reports)]


class R2GenConfig(OwnFile):
    format = "r2gen"

    def text(self, settings: Mapping[str, Any]) -> str:
        with _as_ours():
            return trainer.dump(trainer.parse(settings))

    def recognises(self, values: Mapping[str, Any]) -> bool:
        """Returns True if `data` is set and most settings are known, so that a misspelt one is reported."""
        return "data" in values and 2 * len(values.keys() & trainer.Config.model_fields) > len(values)

    def trains_with(self, file: Path) -> str:
        return f"python -m r2gen train --config {quoted(file)}"


@dataclass(frozen=True)
class R2GenWorkload(Workload):
    entry_point: str = "r2gen.train:fit"
    places = frozenset({"data", "visual_weights"})
    known_settings = (*map(result_setting, _OPTIMIZER), _BENCHMARK, _GRAPHS)
    settings_model = trainer.Config
    models: ClassVar[Mapping[str, Mapping[str, Setting]]] = {"full": _FULL, "small": _FULL | _SMALL}
    epochs = "epochs"
    validation_size = "val_studies"
    cadence = Cadence(_EVALUATED, _between_evaluations)
    program = R2GenProgram()
    own_file = R2GenConfig()
    preload = ("r2gen.train", "torch._dynamo")  # the trainer, and what it would import before its first step
    ends_itself = True

    def report_section(self, place: Path, reports: Mapping[str, Path], samples: int) -> OwnSection | None:
        from r2gen.compared import section  # noqa: PLC0415

        with _as_ours():
            return cast("OwnSection | None", section.section(place, reports, samples))  # of frozen tables

    def complete(self, baseline: Mapping[str, Setting]) -> dict[str, Setting]:
        given = baseline if "data" in baseline else {**baseline, "data": str(_drawn_data())}
        with _as_ours("baseline:"):
            config = trainer.parse(given)
        settings: dict[str, Setting] = config.model_dump(mode="json")
        settings["data"] = str(config.data.resolve())
        if config.visual_weights is not None:
            settings["visual_weights"] = str(config.visual_weights.resolve())
        return settings

    def check(self, settings: Mapping[str, Setting]) -> list[str]:
        from r2gen.annotation import load_annotation  # noqa: PLC0415
        from r2gen.data import load_images  # noqa: PLC0415

        with _as_ours():
            config = trainer.parse(settings)
            annotation = load_annotation(config)
        for split in ("train", "val"):  # fills the cache before the first trial is timed
            load_images(annotation.splits[split], config, training=split == "train")
        sizes = ", ".join(f"{len(studies)} {split}" for split, studies in annotation.splits.items())
        left_out = f"; {annotation.skipped} bad studies are left out" if annotation.skipped else ""
        return [f"data {settings['data']}: {sizes} studies{left_out}"]

    def data_fingerprint(self, settings: Mapping[str, Setting]) -> str | None:
        from r2gen.annotation import fingerprint  # noqa: PLC0415

        with _as_ours():
            return fingerprint(trainer.parse(settings))

    def training_samples(self, settings: Mapping[str, Setting]) -> int | None:
        config, epoch = _epoch(settings)
        return config.epochs * epoch

    def samples_per_epoch(self, settings: Mapping[str, Setting]) -> int | None:
        return _epoch(settings)[1]

    def require_gpus(self, count: float) -> None:
        if count > 1:
            raise InputError(f"--gpus-per-trial: r2gen trains on one GPU, or a part of one, got {count:g}")

    def require_comparable(self, knobs: Collection[str], quality: str, *, minimize: bool = False) -> None:
        allowed = (_LOSS,) if minimize else _SCORES
        if quality not in allowed:
            raise InputError(
                "objective.quality: bleu_1 to bleu_4, full_bleu_1 to full_bleu_4, rouge_l, cider or meteor; "
                f"or objective.minimize: {_LOSS}, got {'minimize: ' if minimize else ''}{quality!r}"
                f"{'' if minimize else did_you_mean(quality, allowed)}"
            )
        moving = sorted((_OF_REFERENCES | ({"cut_reports"} if minimize else set())) & set(knobs))
        if moving and not quality.startswith("full_"):
            raise InputError(
                f"knob {moving[0]}: changes the references of {quality}, so objective.quality must be one "
                "against whole references, such as full_bleu_4"
            )

    def for_trial(
        self, settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
    ) -> dict[str, Setting]:
        every = math.ceil(samples / evaluations)
        return {**settings, _EVALUATED: every, "meteor": quality == "meteor", "halve_on_oom": False}


def _epoch(settings: Mapping[str, Setting]) -> tuple[trainer.Config, int]:
    from r2gen.annotation import load_annotation  # noqa: PLC0415

    with _as_ours():
        config = trainer.parse(settings)
        return config, len(load_annotation(config).splits["train"])


def _drawn_data() -> Path:
    """Returns a small synthetic data set for users without data, created once in the user's cache."""
    from r2gen import synthetic  # noqa: PLC0415
    from r2gen.cache import directory  # noqa: PLC0415

    cache = directory().parent
    try:
        return synthetic.make(cache, _STUDIES, seed=0, size=128)
    except OSError as error:
        raise InputError(f"{cache}: the drawn data set cannot be written: {error.strerror}") from None
