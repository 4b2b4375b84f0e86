"""Training as a generator: a record after every optimizer step, and one after every evaluation."""

import math
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import Tensor
from torch.utils.data import Dataset

from r2gen import checkpoint, features, optim, precision
from r2gen.annotation import load_annotation
from r2gen.clock import Stopwatch
from r2gen.compiling import CUDA_GRAPHS, compiled
from r2gen.config import Config, parse
from r2gen.data import (
    Batch,
    ReportDataset,
    TrainingSampler,
    loader,
    normalise,
    require_shared_memory,
    usable,
)
from r2gen.divergence import BadSteps, RunningStatistics, is_finite
from r2gen.errors import InputError
from r2gen.evaluate import Scorer, build, evaluate
from r2gen.host import keep_freed_memory
from r2gen.metrics import OptionalMeteor
from r2gen.model import loss_sum
from r2gen.packing import Packing, lengths
from r2gen.tokenizer import Tokenizer
from r2gen.visual import load_imagenet_weights

Record = dict[str, Any]

# Settings that may differ when a run goes on: they do not change what it computes.
_FREE = {
    *("epochs", "num_workers", "prefetch_factor", "pin_memory", "eval_batch_size", "eval_studies"),
    *("eval_every_samples", "checkpoint_every_steps", "visual_weights", "data", "skip_bad_samples"),
    "image_cache_gib",
    *("test_scores", "meteor", "max_bad_steps", "compat"),
}
_LAST, _BEST = "last.pt", "best.pt"
_STATE = (
    *("model", "vocabulary", "config"),
    *("optimizer", "scheduler", "scaler", "rng", "epoch", "start", "samples", "step", "skipped"),
    *("evaluated_at", "evaluation", "best"),
)


class _Best(NamedTuple):
    """What `best.pt` is chosen by: first that reports depend on the study, then BLEU-4."""

    depends: bool
    score: float


_NONE = _Best(depends=False, score=-math.inf)


def fit(config: Mapping[str, Any], workdir: Path) -> Generator[Record, None, None]:
    """Trains, and yields a record after every optimizer step and after every evaluation.

    A step's record has `samples` (in total so far), `epoch`, `step`, `train_loss` (nats per token),
    `learning_rate`, `grad_norm` before clipping, `skipped_samples`, `bad_steps` (in a row, this one included;
    their loss is no number and their update left out), and the seconds in `data_s`, `transfer_s` (images to
    the device, and normalised there), `forward_s`, `backward_s` and `optimizer_s`.

    An evaluation's has `samples`, `epoch`, `val_studies`, `val_loss` (nats per token, images whole and the
    words before given), the scores, each but `meteor` with the best constant report's beside it
    (`bleu_4_chance`, ...), `distinct_reports` and `distinct_references` (shares of the studies),
    `bleu_4_shuffled` (reports dealt to other studies), `collapsed` (true: reports hardly depend on the study)
    and `bleu_4_items` (a list, a number a study whose mean is about BLEU-4). Those of the test split are
    `test_...` where asked for, without the list. `best.pt` is of the evaluation with the highest BLEU-4 of
    those that are not collapsed, if there is one.

    The checkpoint `last.pt` is in `workdir`: called again, training goes on from there, bit by bit the same
    on a CPU; where an evaluation was the last thing done, its record comes again. Closing the generator
    writes one, unless the last step was bad. Raises InputError before anything is trained where something
    given is wrong, BadImageError where an image is, StorageError where a checkpoint cannot be written, and
    DivergedError after more than `max_bad_steps` bad steps in a row.
    """
    parsed = parse(config)
    precision.check(parsed)
    require_shared_memory(parsed)
    if precision.device().type == "cpu":
        keep_freed_memory()
    with ExitStack() as stack:
        stack.enter_context(precision.backends(parsed))
        trainer = _Trainer(parsed, workdir, stack.enter_context(OptionalMeteor(wanted=parsed.meteor)))
        try:
            yield from trainer.run()
        finally:
            trainer.save_if_changed()


class _Trainer:
    """The state of a run. Outside of a step it is consistent, and can be written and read back."""

    def __init__(self, config: Config, workdir: Path, meteor: OptionalMeteor) -> None:
        self.config, self._workdir = config, workdir
        annotation = load_annotation(config)
        self._splits, self._train = annotation.splits, annotation.splits["train"]
        self._skipped = annotation.skipped
        checkpoint.prepare(workdir)
        last = checkpoint.load(workdir / _LAST) if (workdir / _LAST).exists() else None
        tokenizer = Tokenizer.from_reports(
            (s.report for s in self._train), config.dataset, config.min_word_count
        )
        torch.manual_seed(config.seed)
        self.model, self._tokenizer = build(config, tokenizer.vocabulary)
        if last is None and config.visual_weights is not None:
            load_imagenet_weights(self.model.visual_extractor, config.visual_weights)
        precision.convert(self.model, config)
        if config.channels_last:
            self.model.visual_extractor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._forward = compiled(self.model, config)
        self._optimizer = optim.optimizer(self.model, config)
        self._scheduler = optim.scheduler(self._optimizer, config)
        self._scaler = precision.Scaler(config)
        self._sampler = TrainingSampler(len(self._train), config)
        self._samples = self._step = self._evaluated_at = self._saved_at = 0
        self._best, self._in_step, self._bad = _NONE, False, BadSteps(config.max_bad_steps)
        self._statistics = RunningStatistics(self.model)
        self._scorer = Scorer(self._train, self._tokenizer, config, meteor)
        self._evaluation: Record | None = None
        if last is not None:
            self._restore(last, workdir / _LAST)
        self._loader = loader(self._dataset(), self._sampler, config, persistent=True)

    def _dataset(self) -> Dataset[Batch]:
        """The training split; for a frozen extractor its features, or whole images where those do not fit."""
        frozen = self.config.freeze_visual
        if frozen and self.config.visual_weights is None:
            print("freeze_visual without visual_weights: the extractor stays random", file=sys.stderr)
        images = ReportDataset(self._train, self._tokenizer, self.config, training=not frozen)
        return (frozen and features.dataset(self.model, self._train, images, self.config)) or images

    def run(self) -> Generator[Record, None, None]:
        """Trains from where it stands to the last epoch."""
        self.model.train()
        if self._evaluation is not None and self._evaluated_at == self._samples:
            yield self._evaluation  # whoever was killed between the checkpoint and the record has not seen it
        while self._sampler.epoch <= self.config.epochs:
            if self._is_evaluation_due():  # the run was stopped between a step and its evaluation
                yield self._evaluate()
            for record in self._epoch():
                yield record
                if self._is_evaluation_due():
                    yield self._evaluate()
                elif self._is_checkpoint_due():
                    self.save()
        self._bad.give_up()  # nothing of what came last is in a checkpoint
        if self._evaluated_at < self._samples:
            yield self._evaluate()

    def _epoch(self) -> Iterator[Record]:
        """The optimizer steps of what is left of the epoch; after the last one the next epoch stands."""
        epoch, batches = self._sampler.epoch, iter(self._loader)
        while self._sampler.epoch == epoch:
            begun = time.perf_counter()
            taken = list(islice(batches, self.config.accumulation_steps))
            window = [batch for batch in taken if usable(batch, self.config)]
            data_s = time.perf_counter() - begun
            self._in_step = True
            self._skipped += sum(len(batch.faults) for batch in taken)
            record = self._optimize(window, epoch) if window else None
            self._advance(len(taken))
            self._in_step = False
            if record is not None:
                yield {**record, "data_s": data_s}

    def _advance(self, micro_batches: int) -> None:
        self._sampler.start += micro_batches
        if self._sampler.start < len(self._sampler):
            return
        if not self._samples:
            raise InputError(f"data {self.config.data}: not one image of the training split can be read")
        self._sampler.epoch, self._sampler.start = self._sampler.epoch + 1, 0
        optim.end_epoch(self._scheduler)

    def _optimize(self, window: list[Batch], epoch: int) -> Record:
        """One optimizer step over the micro-batches of `window`; its loss is the mean over all tokens."""
        device = precision.device()
        self._statistics.keep()
        tokens = sum(sum(lengths(batch.targets)) for batch in window)
        loss = torch.zeros((), device=device)
        watch = Stopwatch(device)
        for batch in window:
            images = normalise(batch.images.to(device, non_blocking=True))
            watch.mark("transfer_s")
            targets, packing = self._reports(batch.targets)
            with precision.autocast(self.config):
                summed, _ = loss_sum(self._forward(images, targets, packing), targets)
            watch.mark("forward_s")
            torch.autograd.backward(self._scaler.scale(summed / tokens))
            loss += summed.detach() / tokens
            watch.mark("backward_s")
        rate = self._optimizer.param_groups[-1]["lr"]
        train_loss, norm = self._update(loss)
        watch.mark("optimizer_s")
        count = sum(len(batch.studies) for batch in window)
        self._samples, self._step = self._samples + count, self._step + 1
        return {
            "samples": self._samples,
            "epoch": epoch,
            "step": self._step,
            "train_loss": train_loss,
            "learning_rate": rate,
            "grad_norm": norm,
            "skipped_samples": self._skipped,
            "bad_steps": self._bad.in_a_row,
            **watch.seconds(),
        }

    def _reports(self, targets: Tensor) -> tuple[Tensor, Packing]:
        """Targets on the device, and the positions whose next word counts.

        CUDA graphs are made anew for every shape, which takes minutes: for them every batch is padded to the
        longest report that there can be, and computed whole, the memory's loop over the words included.
        """
        device = precision.device()
        if self.config.compile not in CUDA_GRAPHS:
            return targets.to(device, non_blocking=True), Packing.of(lengths(targets), device)
        padded = F.pad(targets, (0, self.config.max_seq_length - targets.size(1))).to(device)
        return padded, Packing.whole(padded[:, :-1]).unrolled()

    def _update(self, summed: Tensor) -> tuple[float, float]:
        """Clips and steps; the loss, and the norm before, as numbers. A bad step leaves the model alone."""
        self._scaler.unscale(self._optimizer)
        norms = optim.clip(self.model.parameters(), self.config.grad_clip_value)
        # Read together, because every copy waits for the device; and before the step, which depends on them.
        loss, norm = torch.stack((summed, norms)).tolist()
        if math.isfinite(loss) and not self._scaler.is_bad(norm):
            self._scaler.step(self._optimizer)
            self._bad.end_row()
        else:
            self._scaler.skip()
            self._statistics.put_back()
            self._bad.add(self._step + 1, self._sampler.epoch, loss, norm)
        self._optimizer.zero_grad(set_to_none=True)
        return loss, norm

    def _is_evaluation_due(self) -> bool:
        every = self.config.eval_every_samples
        if every is None:
            return self._sampler.start == 0 and self._evaluated_at < self._samples
        return self._samples // every > self._evaluated_at // every

    def _evaluate(self) -> Record:
        self.save_if_changed()  # it takes long, and who is ended in the middle of it has trained for nothing
        epoch = self._sampler.epoch if self._sampler.start else self._sampler.epoch - 1
        found = evaluate(self.model, self._splits, self._tokenizer, self.config, self._scorer)
        reached = _Best(not found["collapsed"], found["bleu_4"])
        if reached > self._best and self._is_sound():
            checkpoint.save(self._workdir / _BEST, self._weights(reached))
            self._best = reached
        self._evaluation = {"samples": self._samples, "epoch": epoch, **found}
        self._evaluated_at = self._samples  # only now: it is still due where that file could not be written
        self.save()
        return self._evaluation

    def _is_checkpoint_due(self) -> bool:
        every = self.config.checkpoint_every_steps
        return every is not None and self._step % every == 0

    def save_if_changed(self) -> None:
        """Writes the checkpoint unless it holds all that was trained, or a step was left half done."""
        if self._saved_at < self._step and not self._in_step:
            self.save()

    def _is_sound(self) -> bool:
        return not self._bad.in_a_row and is_finite(self.model)

    def save(self) -> None:
        """Writes all that is needed to go on as if nothing had happened; nothing once training went wrong.

        The checkpoint before a row of bad steps is the one to go back to, should the row not end.
        """
        if not self._is_sound():
            return
        state = {
            **self._weights(self._best),
            "optimizer": self._optimizer.state_dict(),
            "scheduler": self._scheduler.state_dict(),
            "scaler": self._scaler.state_dict(),
            "rng": checkpoint.rng_state(),
            "epoch": self._sampler.epoch,
            "start": self._sampler.start,
            "samples": self._samples,
            "step": self._step,
            "evaluated_at": self._evaluated_at,
            "evaluation": self._evaluation,
            "skipped": self._skipped,
        }
        checkpoint.save(self._workdir / _LAST, state)
        self._saved_at = self._step

    def _weights(self, best: "_Best") -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "vocabulary": list(self._tokenizer.vocabulary),
            "config": self.config.model_dump(mode="json"),
            "best": best.score,
            "best_collapsed": not best.depends,
        }

    def _restore(self, state: Mapping[str, Any], file: Path) -> None:
        checkpoint.require(state, _STATE, file)
        self._require_same_run(state, file)
        checkpoint.load_weights(self.model, state["model"], file)
        self._optimizer.load_state_dict(state["optimizer"])
        self._scheduler.load_state_dict(state["scheduler"])
        self._scaler.load_state_dict(state["scaler"])
        checkpoint.set_rng_state(state["rng"])
        self._sampler.epoch, self._sampler.start = state["epoch"], state["start"]
        self._samples, self._step, self._skipped = state["samples"], state["step"], state["skipped"]
        self._evaluated_at, self._evaluation = state["evaluated_at"], state["evaluation"]
        # Before there was a word for it, nothing counted as collapsed.
        self._best = _Best(not state.get("best_collapsed", False), state["best"])
        self._saved_at = self._step

    def _require_same_run(self, state: Mapping[str, Any], file: Path) -> None:
        """Raises InputError where the checkpoint is of a run with other settings or another vocabulary."""
        now = self.config.model_dump(mode="json")
        before = state["config"]
        differ = [k for k in now if k not in _FREE and k in before and before[k] != now[k]]
        if differ:
            shown = ", ".join(f"{k} {before[k]!r}, now {now[k]!r}" for k in differ)
            raise InputError(f"{file}: comes from a run with other settings: {shown}; use another directory")
        checkpoint.require_vocabulary(state["vocabulary"], self._tokenizer.vocabulary, file)
