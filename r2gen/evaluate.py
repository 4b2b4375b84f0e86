"""Reports written for a split, and their scores."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from r2gen import features, host, metrics, precision
from r2gen.annotation import Study
from r2gen.config import Config
from r2gen.data import EvaluationSampler, ReportDataset, loader, normalise, usable
from r2gen.decode import generate
from r2gen.errors import InputError, printable
from r2gen.metrics import Meteor
from r2gen.model import R2Gen
from r2gen.tokenizer import Tokenizer
from r2gen.visual import folded


@dataclass(frozen=True)
class Written:
    """A study, the report that the model wrote, and what it is compared with.

    `reference` is the published protocol's: cut to `max_seq_length`, with `<unk>` for rare words, whatever
    the targets of training are. `full_reference` is the whole cleaned report.
    """

    study: Study
    report: str
    reference: str
    full_reference: str


def write_reports(
    model: R2Gen, studies: Sequence[Study], tokenizer: Tokenizer, config: Config, limit: int | None = None
) -> list[Written]:
    """Reports for the first `limit` studies, in order; the model is left in the mode that it was in."""
    images = ReportDataset(studies, tokenizer, config, training=False)
    kept = features.dataset(model, studies, images, config) if config.freeze_visual else None
    sampler = EvaluationSampler(images.lengths(), limit, config.eval_batch_size)
    was_training = model.training
    model.eval()
    extractor = None if kept else folded(model.visual_extractor)
    written: dict[int, Written] = {}
    try:
        for batch in loader(kept or images, sampler, config, persistent=False):
            if not usable(batch, config):
                continue
            with torch.inference_mode(), precision.autocast(config), _own_random_numbers(config):
                shown = normalise(batch.images.to(precision.device(), non_blocking=True))
                ids = _generate(model, model.encode(shown, extractor), config)
            for index, row in zip(batch.studies.tolist(), ids.tolist(), strict=True):
                written[index] = _written(studies[index], row, tokenizer, config)
    finally:
        model.train(was_training)
    if not written:
        raise InputError(f"data {config.data}: not one image of the studies to write reports for can be read")
    return [written[index] for index in sorted(written)]


def _own_random_numbers(config: Config) -> AbstractContextManager[None]:
    """Words drawn at random leave the random numbers alone that training goes on with."""
    context: AbstractContextManager[None] = torch.random.fork_rng(enabled=config.single_beam == "sample")
    return context


def _generate(model: R2Gen, encoded: Tensor, config: Config) -> Tensor:
    """Ids of reports, with the original's two quirks of a single beam where the configuration has them."""
    single = config.beam_size == 1
    return generate(
        model,
        encoded,
        beam_size=config.beam_size,
        max_length=config.max_seq_length,
        block_trigrams=config.block_trigrams == "on" or (single and config.block_trigrams == "greedy_only"),
        sample=single and config.single_beam == "sample",
    )


def _written(study: Study, ids: list[int], tokenizer: Tokenizer, config: Config) -> Written:
    reference = tokenizer.encode(study.report)[: config.max_seq_length]
    return Written(study, tokenizer.decode(ids), tokenizer.decode(reference), tokenizer.clean(study.report))


class OptionalMeteor:
    """METEOR for as long as its Java process lives. Where it does not, that is said once; there is no score.

    Java is started by the first score, if METEOR is `wanted` at all, and ends with the `with` block.
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self._meteor: Meteor | None = None
        self._given_up = not wanted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._meteor is not None:
            self._meteor.__exit__()

    def score(self, reports: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """`meteor`, or nothing."""
        if self._given_up:
            return {}
        if not Meteor.available():
            return self._give_up("it needs java, which is not installed")
        try:
            self._meteor = self._meteor or Meteor()
            return {"meteor": self._meteor.score(reports, references)}
        except (OSError, RuntimeError, ValueError) as error:  # not started, died, or wrote no score
            return self._give_up(str(error))

    def _give_up(self, reason: str) -> dict[str, float]:
        self._given_up = True
        print(printable(f"METEOR is left out: {reason}"), file=sys.stderr, flush=True)
        return {}


def scores(written: Sequence[Written], meteor: OptionalMeteor) -> dict[str, float]:
    """BLEU-1 to 4, ROUGE-L, CIDEr, METEOR by the published protocol, and BLEU against the whole references.

    The published protocol scores against references cut to `max_seq_length` and with `<unk>` for rare words,
    which reads higher than `full_bleu_*` against the references as they are.
    """
    reports, references = [w.report for w in written], [w.reference for w in written]
    published = metrics.score(reports, references) | meteor.score(reports, references)
    full = metrics.score(reports, [w.full_reference for w in written])
    return published | {f"full_{name}": value for name, value in full.items() if name.startswith("bleu_")}


def evaluate(
    model: R2Gen,
    splits: Mapping[str, Sequence[Study]],
    tokenizer: Tokenizer,
    config: Config,
    meteor: OptionalMeteor,
) -> dict[str, float]:
    """The scores of `model` on the validation studies that the configuration asks for.

    With `test_scores` also on the whole test split, as `test_bleu_4` and so on.
    """
    written = write_reports(model, splits["val"], tokenizer, config, config.eval_studies)
    found = {**scores(written, meteor), "val_studies": len(written)}
    if not config.test_scores:
        return found
    written = write_reports(model, splits["test"], tokenizer, config)
    tested = {**scores(written, meteor), "studies": len(written)}
    return found | {f"test_{name}": value for name, value in tested.items()}


def peak_memory_bytes() -> int:
    """The most that this process has held: tensors on the GPU where there is one, else memory of the host."""
    if precision.device().type == "cuda":
        return torch.cuda.max_memory_allocated()
    return host.peak_resident_bytes()


def build(config: Config, vocabulary: Sequence[str]) -> tuple[R2Gen, Tokenizer]:
    """A model on this machine's device, and the tokenizer that goes with it."""
    if config.beam_size > len(vocabulary) + 1:
        words = len(vocabulary) + 1
        raise InputError(f"beam_size: at most the {words} words of the vocabulary: got {config.beam_size}")
    tokenizer = Tokenizer.from_vocabulary(vocabulary, config.dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = R2Gen(config, len(vocabulary))
    return model.to(precision.device()), tokenizer
