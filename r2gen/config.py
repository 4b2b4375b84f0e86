"""The trainer's configuration: one flat, frozen object, read from YAML and written back to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from r2gen.errors import InputError, format_value, instead

Precision = Literal["fp32", "torch-default", "tf32", "bf16", "fp16", "fp8"]
Schedule = Literal["step", "cosine"]
CompileMode = Literal["off", "cuda-graphs"]

# The original's quirks; docs/r2gen.md says why nobody would want them.
_ORIGINAL = {
    "block_trigrams": "greedy_only",
    "single_beam": "sample",
    "cut_reports": "run_on",
    "test_scores": True,
}


class Config(BaseModel):
    """Every setting of a training run. The defaults are the published ones for IU X-Ray.

    A batch is `micro_batch_size` studies; an optimizer step sees `micro_batch_size * accumulation_steps`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # data
    data: Path = Field(description="directory that holds annotation.json and images/")
    dataset: Literal["iu_xray", "mimic_cxr"] = Field(
        "iu_xray", description="how reports are cleaned, and images per study: IU X-Ray 2, MIMIC-CXR 1"
    )
    image_size: int = Field(224, ge=64, multiple_of=32, description="width and height of an image in pixels")
    max_seq_length: int = Field(
        60, ge=4, le=512, description="longest report in tokens, begin and end included"
    )
    random_flip: bool = Field(
        True, description="mirrors training images half of the time, which mixes up left and right"
    )
    min_word_count: int = Field(3, ge=1, description="rarer words become <unk>")
    skip_bad_samples: bool = Field(
        False, description="leaves out and counts studies that cannot be used; otherwise they end the run"
    )
    cut_reports: Literal["end", "run_on"] = Field(
        "end",
        description="a longer report, in training: keeps its end token, or cuts it off as in the original",
    )

    # model
    visual_extractor: Literal["resnet101", "small"] = Field(
        "resnet101", description="the network that reads the images; small: for CPUs and first tries"
    )
    visual_weights: Path | None = Field(None, description="ImageNet weights under torchvision's names")
    d_model: int = Field(512, ge=8, description="width of the transformer; both numbers of heads divide it")
    d_ff: int = Field(512, ge=8, description="width inside its feed-forward layers")
    num_heads: int = Field(8, ge=1, description="heads of its attention")
    num_layers: int = Field(3, ge=1, description="layers of the encoder, and of the decoder")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of words and in every sublayer")
    drop_prob_lm: float = Field(0.5, ge=0, lt=1, description="dropout of the embedded image patches")
    rm_num_slots: int = Field(3, ge=1, description="slots of the relational memory")
    rm_num_heads: int = Field(8, ge=1, description="heads of the relational memory's attention")

    # optimisation
    micro_batch_size: int = Field(16, ge=1, description="studies per forward and backward pass")
    accumulation_steps: int = Field(1, ge=1, description="micro-batches per optimizer step")
    learning_rate: float = Field(
        1e-4, gt=0, description="learning rate of everything but the visual extractor"
    )
    visual_learning_rate_ratio: float = Field(
        0.5, gt=0, description="the visual extractor's learning rate, as a share of learning_rate"
    )
    weight_decay: float = Field(5e-5, ge=0, description="Adam's L2 penalty on every parameter")
    amsgrad: bool = Field(True, description="the AMSGrad variant of Adam")
    grad_clip_value: float = Field(0.1, gt=0, description="clips every element of a gradient to this")
    schedule: Schedule = Field(
        "step",
        description="how the learning rate falls: in steps, or as a cosine to 0 at the end of training",
    )
    warmup_samples: int = Field(0, ge=0, description="samples over which the learning rate rises from 0")
    lr_step_epochs: int = Field(
        50, ge=1, description="epochs between reductions of the learning rate; schedule: step"
    )
    lr_gamma: float = Field(0.1, gt=0, le=1, description="factor of each of these reductions")
    epochs: int = Field(100, ge=1, description="passes over the training split")
    max_bad_steps: int = Field(
        3, ge=0, description="most steps in a row to skip because their loss is not a number"
    )
    seed: int = Field(
        9223, ge=0, description="seed of weights, the order of studies, dropout and augmentation"
    )

    # speed
    precision: Precision = Field(
        "fp32",
        description="number format of the computation; torch-default: as PyTorch does where nothing is set; "
        "tf32, fp16 and fp8 need a GPU: `autotune doctor`",
    )
    compile: CompileMode = Field(
        "off",
        description="cuda-graphs: on a GPU, records the passes of a micro-batch once and replays them",
    )
    activation_checkpointing: bool = Field(
        False, description="recomputes activations in the backward pass: less memory, more time"
    )
    cudnn_benchmark: bool = Field(
        False,
        description="on a GPU, tries cuDNN's algorithms for every shape of images, and takes the fastest",
    )
    channels_last: bool = Field(True, description="memory layout of the visual extractor")
    freeze_visual: bool = Field(
        False, description="does not train the visual extractor; caches its features of whole images"
    )
    views_together: bool = Field(
        False, description="one call of the visual extractor for all views, which then share statistics"
    )
    num_workers: int = Field(2, ge=0, description="processes that load batches; 0: the training process does")
    prefetch_factor: int = Field(2, ge=1, description="batches that each of these processes prepares ahead")
    pin_memory: bool = Field(
        True, description="keeps batches in page-locked memory, from which a GPU copies faster"
    )
    loader_timeout_s: float = Field(
        600.0, ge=0, le=10**6, description="longest wait for a batch from these processes; 0: any"
    )
    halve_on_oom: bool = Field(
        True,
        description="where memory runs out, goes on with half the micro-batch and the same effective batch, "
        "or half the eval_batch_size; off in the trials of a search",
    )
    image_cache_gib: float = Field(
        32.0, ge=0, le=2**20, description="disk space in GiB for decoded images; 0: none are kept"
    )

    # evaluation and checkpoints
    beam_size: int = Field(3, ge=1, description="beams when a report is written; 1: no beam search")
    block_trigrams: Literal["off", "on", "greedy_only"] = Field(
        "off",
        description="makes repeated trigrams less likely; greedy_only: with one beam, like the original",
    )
    single_beam: Literal["greedy", "sample"] = Field(
        "greedy", description="with beam_size 1: the likeliest word, or a sampled one as in the original"
    )
    eval_batch_size: int = Field(32, ge=1, description="studies whose reports are written at once")
    eval_every_samples: int | None = Field(
        None, ge=1, description="samples between evaluations; none: an epoch"
    )
    eval_studies: int | None = Field(None, ge=1, description="validation studies scored; none: all")
    meteor: bool = Field(True, description="scores METEOR where Java is installed; it takes seconds to start")
    test_scores: bool = Field(
        False, description="scores the test split as well; val still chooses the best checkpoint"
    )
    checkpoint_every_steps: int | None = Field(
        None, ge=1, description="steps between checkpoints, besides those after every evaluation"
    )

    compat: Literal["off", "original"] = Field(
        "off", description="original: the original's quirks, except where a setting is given explicitly"
    )

    @property
    def effective_batch_size(self) -> int:
        return self.micro_batch_size * self.accumulation_steps

    @property
    def image_cache_bytes(self) -> int:
        return int(self.image_cache_gib * 2**30)

    @property
    def views(self) -> int:
        """Images per study: a frontal and a lateral one for IU X-Ray, one for MIMIC-CXR."""
        return 2 if self.dataset == "iu_xray" else 1

    @model_validator(mode="before")
    @classmethod
    def _fill_compat(cls, values: Any) -> Any:
        return with_compat(values) if isinstance(values, Mapping) else values

    @field_validator("compile", "block_trigrams", "compat", mode="before")
    @classmethod
    def _unbool(cls, value: Any) -> Any:
        """Undoes YAML's reading of a bare `on` as true and a bare `off` as false."""
        return ("on" if value else "off") if isinstance(value, bool) else value

    @field_validator("data", "visual_weights")
    @classmethod
    def _is_a_path(cls, value: Path | None) -> Path | None:
        if "\0" in str(value):
            raise ValueError("a path cannot hold the character 0")
        return value

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        for name in ("num_heads", "rm_num_heads"):
            heads = getattr(self, name)
            if self.d_model % heads:
                raise ValueError(f"{name} must divide d_model, got {heads} and {self.d_model}")
        return self


def with_compat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the original's quirks that `values` does not set itself, if `compat` is "original"."""
    return {**(_ORIGINAL if values.get("compat") == "original" else {}), **values}


def parse(values: Mapping[str, Any]) -> Config:
    """Parses `values`; raises InputError with every mistake in one line."""
    try:
        return Config.model_validate(dict(values))
    except ValidationError as error:
        raise InputError("config: " + "; ".join(_mistake(e) for e in error.errors())) from None


def _mistake(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{where}: no such setting{instead(where, Config.model_fields)}"
    if error["type"] == "missing":
        return f"{where}: required"
    message = error["msg"].removeprefix("Value error, ")
    given = format_value(error["input"])
    return f"{where}: {message[0].lower()}{message[1:]}, got {given}" if where else message


def load(path: Path) -> Config:
    """Loads a YAML file; raises InputError naming the file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"config {path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:  # the line itself is left out: it may hold a password
        at = error.problem_mark or error.context_mark
        where = f" in line {at.line + 1}, column {at.column + 1}" if at else ""
        what = error.problem or error.context
        raise InputError(f"config {path}: cannot be read: {what}{where}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML passes on errors of int, datetime and deep nesting
        raise InputError(f"config {path}: cannot be read: is not YAML: {type(error).__name__}") from None
    if not isinstance(values, dict):
        raise InputError(f"config {path}: must be a mapping of settings, got {type(values).__name__}")
    return parse(values)


def dump(config: Config) -> str:
    """Returns `config` as YAML, every setting included, in the order of the class."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
