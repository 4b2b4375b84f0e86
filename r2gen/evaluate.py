"""Generates the reports of a split and scores them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from r2gen import features, host, metrics, precision
from r2gen.annotation import Study
from r2gen.chance import chance
from r2gen.config import Config
from r2gen.data import EvaluationSampler, ReportDataset, batches, loader, normalise, usable
from r2gen.decode import draw, search
from r2gen.dependence import dependence
from r2gen.errors import InputError
from r2gen.metrics import OptionalMeteor
from r2gen.model import EncoderDecoder, R2Gen, loss_sum
from r2gen.packing import Packing, lengths
from r2gen.tokenizer import Tokenizer
from r2gen.visual import folded


@dataclass(frozen=True)
class Written:
    """A study, the report that the model generated, and its references."""

    study: Study
    report: str
    reference: str  # by the published protocol: cut to `max_seq_length`, `<unk>` for rare words
    full_reference: str  # the whole cleaned report
    nats: float  # teacher-forced loss on the training target, summed over its tokens
    tokens: int


def write_reports(
    model: R2Gen, studies: Sequence[Study], tokenizer: Tokenizer, config: Config, limit: int | None = None
) -> list[Written]:
    """Generates reports for the first `limit` studies, in order, and restores the model's mode afterwards."""
    images = ReportDataset(studies, tokenizer, config, training=False)
    cached = features.dataset(model, studies, images, config) if config.freeze_visual else None
    sampler = EvaluationSampler(images.lengths(), limit, config.eval_batch_size)
    was_training = model.training
    model.eval()
    extractor = None if cached else folded(model.visual_extractor)
    written: dict[int, Written] = {}
    try:
        for batch in batches(loader(cached or images, sampler, config, persistent=False)):
            if not usable(batch, config):
                continue
            with precision.inference(config), precision.autocast(config), _own_random_numbers(config):
                pixels = normalise(batch.images.to(precision.device(), non_blocking=True))
                encoded = model.encode(pixels, extractor)
                losses = _losses(model, encoded, batch.targets)
                ids = _generate(model.encoder_decoder, encoded, config)
            for index, row, loss in zip(batch.studies.tolist(), ids.tolist(), losses, strict=True):
                written[index] = _written(studies[index], row, loss, tokenizer, config)
    finally:
        model.train(was_training)
    if not written:
        raise InputError(f"data {config.data}: not one image of the studies to write reports for can be read")
    return [written[index] for index in sorted(written)]


def _own_random_numbers(config: Config) -> AbstractContextManager[None]:
    """Keeps sampled words from changing the random state that training continues with."""
    context: AbstractContextManager[None] = torch.random.fork_rng(enabled=config.single_beam == "sample")
    return context


def _generate(decoder: EncoderDecoder, encoded: Tensor, config: Config) -> Tensor:
    """Generates ids, with the original's two single-beam quirks if configured."""
    single = config.beam_size == 1
    block = config.block_trigrams == "on" or (single and config.block_trigrams == "greedy_only")
    length = config.max_seq_length
    if single and config.single_beam == "sample":
        return draw(decoder, encoded, max_length=length, block_trigrams=block)
    return search(decoder, encoded, beam_size=config.beam_size, max_length=length, block_trigrams=block)


def _losses(model: R2Gen, encoded: Tensor, targets: Tensor) -> list[tuple[float, int]]:
    """Returns for each of `targets` [B, T] the summed loss in nats and its number of tokens."""
    tokens, targets = lengths(targets), targets.to(encoded.device, non_blocking=True)
    log_probs = model.encoder_decoder.teach(encoded, targets, Packing.from_lengths(tokens, encoded.device))
    nats = torch.stack([loss_sum(log_probs[i : i + 1], targets[i : i + 1]) for i in range(len(targets))])
    return list(zip(nats.tolist(), tokens, strict=True))


def _written(
    study: Study, ids: list[int], loss: tuple[float, int], tokenizer: Tokenizer, config: Config
) -> Written:
    reference = _as_written(study, tokenizer, config)
    return Written(study, tokenizer.decode(ids), reference, tokenizer.clean(study.report), *loss)


def _as_written(study: Study, tokenizer: Tokenizer, config: Config) -> str:
    """Returns the study's report as a model could generate it: truncated, with `<unk>`."""
    return tokenizer.decode(tokenizer.encode(study.report)[: config.max_seq_length])


class Scorer:
    """Scores generated reports, and the best constant report for comparison.

    `training` holds the candidates for the constant report.
    """

    def __init__(
        self, training: Sequence[Study], tokenizer: Tokenizer, config: Config, meteor: OptionalMeteor
    ) -> None:
        self._training, self._tokenizer, self._config, self._meteor = training, tokenizer, config, meteor

    @cached_property
    def _constants(self) -> list[str]:
        return [_as_written(study, self._tokenizer, self._config) for study in self._training]

    def __call__(self, written: Sequence[Written]) -> dict[str, Any]:
        """Returns the loss, the `scores`, `<score>_chance` for each but METEOR, and the `dependence` figures.

        A chance level is the score of the best constant report, chosen for the references that the score
        uses.
        """
        reports = [w.report for w in written]
        references, whole = [w.reference for w in written], [w.full_reference for w in written]
        constant = chance(self._constants, references) | _full(chance(self._constants, whole))
        return {
            **dependence(reports, references),
            "loss": sum(w.nats for w in written) / sum(w.tokens for w in written),
            **scores(written, self._meteor),
            **{f"{name}_chance": value for name, value in constant.items()},
        }


def scores(written: Sequence[Written], meteor: OptionalMeteor) -> dict[str, float]:
    """Returns BLEU-1 to 4, ROUGE-L, CIDEr and METEOR by the published protocol, and BLEU on full references.

    The published protocol truncates references to `max_seq_length` and replaces rare words with `<unk>`, so
    its scores are higher than `full_bleu_*` on the unmodified references.
    """
    reports, references = [w.report for w in written], [w.reference for w in written]
    published = metrics.score(reports, references) | meteor.score(reports, references)
    return published | _full(metrics.score(reports, [w.full_reference for w in written]))


def _full(scores: Mapping[str, float]) -> dict[str, float]:
    """Returns the BLEU values of `scores`, renamed to `full_bleu_*`."""
    return {f"full_{name}": value for name, value in scores.items() if name.startswith("bleu_")}


def evaluate(
    model: R2Gen,
    splits: Mapping[str, Sequence[Study]],
    tokenizer: Tokenizer,
    config: Config,
    scorer: Scorer,
) -> dict[str, Any]:
    """Scores `model` on the configured number of validation studies.

    With `test_scores`, scores it also on the whole test split, as `test_bleu_4` and so on, without
    `bleu_4_items`.
    """
    written = write_reports(model, splits["val"], tokenizer, config, config.eval_studies)
    figures = scorer(written)
    figures = {"val_studies": len(written), "val_loss": figures.pop("loss"), **figures}
    if not config.test_scores:
        return figures
    written = write_reports(model, splits["test"], tokenizer, config)
    tested = {"studies": len(written), **scorer(written)}
    del tested["bleu_4_items"]
    return figures | {f"test_{name}": value for name, value in tested.items()}


def peak_memory_bytes() -> int:
    """Returns this process's peak memory: tensors on the GPU if there is one, else resident host memory."""
    if precision.device().type == "cuda":
        return torch.cuda.max_memory_allocated()
    return host.peak_resident_bytes()


def build(config: Config, vocabulary: Sequence[str]) -> tuple[R2Gen, Tokenizer]:
    """Builds a model on this machine's device, and its tokenizer."""
    if config.beam_size > len(vocabulary) + 1:
        words = len(vocabulary) + 1
        raise InputError(f"beam_size: at most the {words} words of the vocabulary, got {config.beam_size}")
    tokenizer = Tokenizer(vocabulary, config.dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = R2Gen(config, len(vocabulary))
    return model.to(precision.device()), tokenizer
