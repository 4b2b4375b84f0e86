"""Compares r2gen with recordings of the original R2Gen, and exits 1 if they differ too much.

    python benchmarks/check_parity.py DIRECTORY

DIRECTORY holds config.json (the model's dimensions), r2gen_golden.npz (weights, inputs, outputs, gradients,
decoded reports) and r2gen_train_golden.npz (three optimizer steps behind a small linear extractor), and
optionally tokenizer_golden.json (reports and their ids) and metrics_golden.json (pairs of reports, their
scores).
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from r2gen.config import Config
from r2gen.decode import search
from r2gen.metrics import Meteor, score
from r2gen.model import EncoderDecoder, loss_sum
from r2gen.packing import Packing, lengths
from r2gen.tokenizer import UNKNOWN, Tokenizer

LOG_PROBABILITY_BOUND = 1e-5
RELATIVE_BOUND = 1e-4
SCORE_BOUND = 1e-9
STEP_BOUND = 2e-6  # absolute, on the sum over a parameter's elements
MODEL_SETTINGS = (
    *("d_model", "d_ff", "num_heads", "num_layers", "dropout", "drop_prob_lm"),
    *("rm_num_slots", "rm_num_heads", "max_seq_length"),
)
# A key's bias shifts all scores of a softmax equally: its gradient is 0, and the recorded one is noise.
KEY_BIAS = ".linears.1.bias"


@dataclass(frozen=True)
class Comparison:
    what: str
    difference: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.difference <= self.bound  # false for NaN


class Recording:
    """The recorded arrays of a directory, as tensors."""

    def __init__(self, directory: Path) -> None:
        self.dimensions: dict[str, Any] = json.loads((directory / "config.json").read_text())
        self.model = _arrays(directory / "r2gen_golden.npz")
        self.training = _arrays(directory / "r2gen_train_golden.npz")
        self._directory = directory

    def optional(self, name: str) -> dict[str, Any]:
        """Returns the values of a file, empty if it is missing."""
        file = self._directory / name
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    def decoder(self) -> EncoderDecoder:
        """Returns the recorded model in evaluation mode."""
        config = Config(data=Path("none"), **{name: self.dimensions[name] for name in MODEL_SETTINGS})
        decoder = EncoderDecoder(config, self.dimensions["d_vf"], self.dimensions["vocab_size"])
        weights = {
            name.removeprefix("sd/"): torch.from_numpy(array)
            for name, array in self.model.items()
            if name.startswith("sd/")
        }
        weights["model.tgt_embed.1.pe"] = decoder.state_dict()["model.tgt_embed.1.pe"]  # not recorded
        decoder.load_state_dict(weights)
        return decoder.eval()

    def tensor(self, name: str) -> Tensor:
        return torch.from_numpy(self.model[name])


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def compare_outputs(recording: Recording) -> Iterator[Comparison]:
    decoder, read = recording.decoder(), recording.tensor
    with torch.no_grad():
        log_probs = decoder(read("in/att_feats"), read("in/targets"))
        words = read("fwd/rm_in")
        packing = Packing.full(words)
        remembered = packing.unpack(
            decoder.model.rm(packing.pack(words), read("fwd/rm_mem0"), packing.running)
        )
    largest = (log_probs - read("fwd/logprobs")).abs().max().item()
    yield Comparison("teacher-forced log-probabilities", largest, LOG_PROBABILITY_BOUND)
    difference = relative(remembered, read("fwd/rm_out"))
    yield Comparison("relational memory, relative", difference, RELATIVE_BOUND)


def compare_gradients(recording: Recording) -> Iterator[Comparison]:
    decoder, recorded = recording.decoder(), recording.model
    log_probs = decoder(recording.tensor("in/att_feats"), recording.tensor("in/targets"))
    parameters = dict(decoder.named_parameters())
    loss = mean_loss(log_probs, recording.tensor("in/targets"))
    gradients = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    for name, norm, total in zip(*(recorded[f"grad/{key}"] for key in ("names", "norm", "sum")), strict=True):
        if not name.endswith(KEY_BIAS):
            gradient = gradients[name].double()
            difference = max(abs(gradient.norm().item() - norm), abs(gradient.sum().item() - total)) / norm
            yield Comparison(f"gradient of {name}: norm and sum, relative", difference, RELATIVE_BOUND)
    for name in (key.removeprefix("grad/full/") for key in recorded if key.startswith("grad/full/")):
        if not name.endswith(KEY_BIAS):
            difference = relative(gradients[name], recording.tensor(f"grad/full/{name}"))
            yield Comparison(f"gradient of {name}: elements, relative", difference, RELATIVE_BOUND)


def compare_steps(recording: Recording) -> Iterator[Comparison]:
    """Compares three steps of the original's optimizer (Adam, amsgrad, clipped gradients) on one batch."""
    recorded, model = recording.training, Trained(recording)
    optimizer = model.optimizer(recording.dimensions)
    patches, targets = (torch.from_numpy(recorded[f"in/{name}"]) for name in ("patches", "targets"))
    parameters = dict(model.named_parameters())
    for step, expected in enumerate(recorded["losses"], start=1):
        loss = mean_loss(model(patches, targets), targets)
        yield Comparison(f"step {step}: loss", abs(loss.item() - expected), STEP_BOUND)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_value_(model.parameters(), recording.dimensions["grad_clip_value"])
        optimizer.step()
        differences = [
            abs(parameters[name].double().sum().item() - total)
            for name, total in zip(recorded["names"], recorded[f"step{step}/sum"], strict=True)
            if not name.endswith(KEY_BIAS)
        ]
        yield Comparison(f"step {step}: sums of parameters", float(np.max(differences)), STEP_BOUND)


class Trained(nn.Module):
    """The recorded decoder behind the small extractor that it was trained with."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        weight, bias = (torch.from_numpy(recording.training[f"ve/{name}"]) for name in ("weight", "bias"))
        self.visual_extractor = nn.Linear(weight.size(1), weight.size(0))
        self.visual_extractor.load_state_dict({"weight": weight, "bias": bias})
        self.encoder_decoder = recording.decoder()

    def forward(self, patches: Tensor, targets: Tensor) -> Tensor:
        log_probs: Tensor = self.encoder_decoder(torch.tanh(self.visual_extractor(patches)), targets)
        return log_probs

    def optimizer(self, dimensions: dict[str, Any]) -> torch.optim.Optimizer:
        groups = [
            {"params": self.visual_extractor.parameters(), "lr": dimensions["lr_ve"]},
            {"params": self.encoder_decoder.parameters(), "lr": dimensions["lr_ed"]},
        ]
        decay, amsgrad = dimensions["weight_decay"], dimensions["amsgrad"]
        return torch.optim.Adam(groups, weight_decay=decay, amsgrad=amsgrad)


def compare_words(recording: Recording) -> Iterator[Comparison]:
    decoder = recording.decoder()
    with torch.no_grad():
        encoded = decoder.encode(recording.tensor("in/att_feats"))
    length = recording.dimensions["max_seq_length"]
    variants = {
        "beam3": (3, False),
        "beam5": (5, False),
        "greedy_noblock": (1, False),
        "greedy_block": (1, True),
    }
    for name, (beams, block) in variants.items():
        written = search(decoder, encoded, beam_size=beams, max_length=length, block_trigrams=block)
        others = (written != recording.tensor(f"dec/{name}/seq")).sum().item()
        yield Comparison(f"words written by {name}: other ones", others, 0)


def compare_reports(recording: Recording) -> Iterator[Comparison]:
    golden = recording.optional("tokenizer_golden.json")
    tokenizer = Tokenizer(golden.get("vocab", [UNKNOWN]), "iu_xray")
    for name, key in (("items", "ids"), ("synthetic", "ids_iu")):
        if reports := golden.get(name):
            others = sum(tokenizer.encode(item["report"]) != item[key] for item in reports)
            yield Comparison(f"ids of {len(reports)} reports ({name}): other ones", others, 0)


def compare_scores(recording: Recording) -> Iterator[Comparison]:
    golden = recording.optional("metrics_golden.json")
    for name, part in (("pairs", golden), ("odd pairs", golden.get("edge", {}))):
        if pairs := part.get("pairs"):
            given = [p["res"] for p in pairs], [p["gt"] for p in pairs]
            scores = score(*given)
            if Meteor.available():
                with Meteor() as meteor:
                    scores["meteor"] = meteor.score(*given)
            for metric, expected in part["scores"].items():
                if metric.lower() in scores:
                    difference = abs(scores[metric.lower()] - expected)
                    yield Comparison(f"{metric} of {len(pairs)} {name}", difference, SCORE_BOUND)


def mean_loss(log_probs: Tensor, targets: Tensor) -> Tensor:
    return loss_sum(log_probs, targets) / sum(lengths(targets))


def relative(given: Tensor, expected: Tensor) -> float:
    """Returns the largest difference, relative to the largest expected value."""
    return ((given - expected).abs().max() / expected.abs().max()).item()


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    recording = Recording(Path(arguments[0]))
    failed = 0
    compared = (
        compare_outputs,
        compare_gradients,
        compare_steps,
        compare_words,
        compare_reports,
        compare_scores,
    )
    for compare in compared:
        for comparison in compare(recording):
            failed += not comparison.passed
            verdict = "ok  " if comparison.passed else "FAIL"
            print(f"{verdict} {comparison.difference:.1e} (at most {comparison.bound:.0e}) {comparison.what}")
    print(f"{failed} comparisons failed" if failed else "all comparisons passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
