"""Restores a trained model from a checkpoint of this trainer or of the original R2Gen."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from r2gen import checkpoint
from r2gen.annotation import load_annotation
from r2gen.config import Config, parse
from r2gen.errors import InputError
from r2gen.evaluate import build
from r2gen.model import R2Gen
from r2gen.tokenizer import Tokenizer


def restore(
    file: Path, config: Config | None, settings: Mapping[str, Any]
) -> tuple[R2Gen, Tokenizer, Config]:
    """Returns the model in `file` in evaluation mode, its tokenizer, and its configuration.

    `config` replaces the one in the checkpoint; `settings` override single values. An original checkpoint has
    neither configuration nor vocabulary: the vocabulary is rebuilt from its data set. Raises InputError if
    something is missing or does not fit.
    """
    state = checkpoint.load(file)
    is_ours = "state_dict" not in state
    if is_ours:
        checkpoint.require(state, ("model", "vocabulary", "config"), file)
    if config is None and not is_ours and "data" not in settings:
        raise InputError(f"checkpoint {file}: is the original R2Gen's, which has no settings: give --data")
    base = config.model_dump() if config else state.get("config", {})
    full = parse({**base, "compile": "off", **settings})
    if is_ours:
        vocabulary, weights = tuple(state["vocabulary"]), state["model"]
    else:
        reports = (study.report for study in load_annotation(full).splits["train"])
        vocabulary = Tokenizer.from_reports(reports, full.dataset, full.min_word_count).vocabulary
        weights = state["state_dict"]
        _require_size(weights, len(vocabulary), file)
    model, tokenizer = build(full, vocabulary)
    checkpoint.load_weights(model, weights, file)
    return model.eval(), tokenizer, full


def _require_size(weights: Mapping[str, Tensor], words: int, file: Path) -> None:
    """Checks the vocabulary size, which shows most mistakes: an original checkpoint stores no words."""
    bias = weights.get("encoder_decoder.logit.bias")
    if bias is not None and len(bias) != words + 1:
        raise InputError(
            f"checkpoint {file}: has a vocabulary of {len(bias) - 1} words, the training split has {words}: "
            "it needs the reports and the min_word_count that it was trained with"
        )
