"""A trained model from a checkpoint, ours or the original R2Gen's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    """The model in `file`, in evaluation mode, its tokenizer, and the configuration it runs with.

    `config` replaces the one in the checkpoint, `settings` override single values. An original checkpoint
    has neither configuration nor vocabulary: the latter is counted anew from its data set. Raises InputError
    where something is missing or does not fit.
    """
    state = checkpoint.load(file)
    is_ours = "state_dict" not in state
    if config is None and not is_ours and "data" not in settings:
        raise InputError(f"checkpoint {file}: is the original R2Gen's, which has no settings: give --data")
    base = config.model_dump() if config else state.get("config", {})
    whole = parse({**base, **settings})
    if is_ours:
        vocabulary, weights = tuple(state["vocabulary"]), state["model"]
    else:
        reports = (study.report for study in load_annotation(whole).splits["train"])
        vocabulary = Tokenizer.from_reports(reports, whole.dataset, whole.min_word_count).vocabulary
        weights = state["state_dict"]
    model, tokenizer = build(whole, vocabulary)
    checkpoint.load_weights(model, weights, file)
    return model.eval(), tokenizer, whole
