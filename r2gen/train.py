"""Training as a generator: a record after every optimizer step, and one after every evaluation."""

import math
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import Dataset

from r2gen import checkpoint, features, precision
from r2gen.annotation import load_annotation
from r2gen.config import Config, parse
from r2gen.data import Batch, ReportDataset, TrainingSampler, batches, loader, require_shared_memory, usable
from r2gen.divergence import is_finite
from r2gen.errors import DivergedError, InputError, StorageError, printable
from r2gen.evaluate import Scorer, build, evaluate
from r2gen.features import FeatureDataset
from r2gen.host import tune_allocator, uninterrupted
from r2gen.metrics import OptionalMeteor
from r2gen.optim import Position
from r2gen.shortage import HalvedBatch
from r2gen.step import Gradients, Stepper
from r2gen.tokenizer import Tokenizer
from r2gen.visual import load_imagenet_weights

Record = dict[str, Any]

# Settings that may change on resuming, as they do not change the result. With a cosine, epochs do.
_FREE = {
    *("epochs", "num_workers", "prefetch_factor", "pin_memory", "eval_batch_size", "eval_studies"),
    *("eval_every_samples", "checkpoint_every_steps", "visual_weights", "data", "skip_bad_samples"),
    "image_cache_gib",
    *("test_scores", "meteor", "max_bad_steps", "compat", "loader_timeout_s", "halve_on_oom"),
}
# May change, up to rounding and the dropout that is drawn.
_REORDERING = {"compile"}
# May change if their product stays: the division of a step into micro-batches.
_CUT = {"micro_batch_size", "accumulation_steps"}
_LAST, _BEST = "last.pt", "best.pt"
_STATE = (
    *("model", "vocabulary", "config"),
    *("optimizer", "scaler", "rng", "epoch", "start", "samples", "step", "skipped"),
    *("evaluated_at", "evaluation", "best"),
)


class _Best(NamedTuple):
    """The ranking for `best.pt`: first whether reports depend on the study, then BLEU-4."""

    depends: bool
    score: float


_NONE = _Best(depends=False, score=-math.inf)


def fit(config: Mapping[str, Any], workdir: Path) -> Generator[Record, None, None]:
    """Trains, and yields a record after every optimizer step and after every evaluation.

    A step's record has `samples` (the total so far), `epoch`, `step`, `train_loss` (nats per token),
    `learning_rate`, `grad_norm` before clipping, `skipped_samples`, `bad_steps` (in a row, including this
    one; their loss is not finite and their update skipped), and the seconds in `data_s`, `transfer_s` (images
    to the device, and their normalisation), `forward_s`, `backward_s` and `optimizer_s`.

    An evaluation's record has `samples`, `epoch`, `val_studies`, `val_loss` (nats per token, teacher-forced,
    images uncropped), the scores, each but `meteor` with that of the best constant report (`bleu_4_chance`,
    ...), `distinct_reports` and `distinct_references` (shares of the studies), `bleu_4_shuffled` (reports
    assigned to other studies), `collapsed` (reports hardly depend on the study) and `bleu_4_items` (one
    number per study, with a mean of about BLEU-4). The test split's scores, if configured, are `test_...`,
    without the list. `best.pt` is from the evaluation with the highest BLEU-4 that is not collapsed, if there
    is one.

    If memory runs out and `halve_on_oom` is on, the step is repeated in micro-batches half as large, which
    are used from then on: their records have `micro_batch_size`. The effective batch stays.

    `workdir` holds the checkpoint `last.pt`, from which another call resumes: bit-identical on a CPU; with
    other micro-batches identical up to rounding, dropout and batch-norm statistics. If an evaluation was the
    last thing done, its record comes again. Closing the generator writes a checkpoint, unless the last step
    was bad. So does an error, of the state before the failed step, unless it came during the update of the
    weights.

    Raises InputError before training if an argument is wrong, BadImageError if an image cannot be read,
    StorageError if a checkpoint cannot be written, LoaderError if no batch arrives, and DivergedError after
    more than `max_bad_steps` bad steps in a row, or if training ends in such a row with a model whose
    `val_loss` is not finite.
    """
    parsed = parse(config)
    precision.check(parsed, precision.capability())
    require_shared_memory(parsed)
    if precision.device().type == "cpu":
        tune_allocator()
    with ExitStack() as stack:
        stack.enter_context(precision.backends(parsed))
        trainer = _Trainer(parsed, workdir, stack.enter_context(OptionalMeteor(wanted=parsed.meteor)))
        try:
            yield from trainer.run()
        except (StorageError, DivergedError):  # the disk is not writable, or the weights are useless
            raise
        except Exception:
            trainer.rescue()
            raise
        except BaseException:  # closed, or interrupted
            trainer.save_if_changed()
            raise


class _Trainer:
    """The state of a run. It can be saved and restored except during an update of the weights."""

    def __init__(self, config: Config, workdir: Path, meteor: OptionalMeteor) -> None:
        self.config, self._workdir = config, workdir
        annotation = load_annotation(config)
        self._splits, self._train = annotation.splits, annotation.splits["train"]
        self._skipped = self._left_out = annotation.skipped
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
        self._stepper = Stepper(self.model, config)
        self._sampler = TrainingSampler(len(self._train), config)
        self._samples = self._step = self._evaluated_at = self._saved_at = 0
        self._best, self._is_torn = _NONE, False
        self._eval_batch = HalvedBatch("eval_batch_size", config)
        self._scorer = Scorer(self._train, self._tokenizer, config, meteor)
        self._evaluation: Record | None = None
        if last is not None:
            self._restore(last, workdir / _LAST)
        self._loader = loader(self._dataset(), self._sampler, config, persistent=True)
        _tell(_sizes(self.model))

    def _dataset(self) -> Dataset[Batch]:
        """Returns the training split; with a frozen extractor its features, if they fit, or whole images."""
        frozen = self.config.freeze_visual
        if frozen and self.config.visual_weights is None:
            print("freeze_visual without visual_weights: the extractor stays random", file=sys.stderr)
        images = ReportDataset(self._train, self._tokenizer, self.config, training=not frozen)
        return (frozen and self._eval_batch.run(partial(self._features, images))) or images

    def _features(self, images: ReportDataset, batch_size: int) -> FeatureDataset | None:
        return features.dataset(self.model, self._train, images, self._evaluating(batch_size))

    def _evaluating(self, batch_size: int) -> Config:
        return self.config.model_copy(update={"eval_batch_size": batch_size})

    def run(self) -> Generator[Record, None, None]:
        """Trains from the current position to the last epoch."""
        self.model.train()
        if self._evaluation is not None and self._evaluated_at == self._samples:
            yield self._evaluation  # a run killed after the checkpoint has not yielded it
        while not self._is_over():
            if self._is_evaluation_due():  # the run was stopped between a step and its evaluation
                yield self._evaluate()
            for record in self._epoch():
                yield record
                if self._is_evaluation_due():
                    yield self._evaluate()
                elif self._is_checkpoint_due():
                    self.save()
        if self._evaluated_at < self._samples:
            yield self._evaluate()
        self._stepper.bad.give_up()  # the last steps are in no checkpoint

    def _epoch(self) -> Iterator[Record]:
        """Yields the optimizer steps left in the epoch, and moves on to the next epoch after the last."""
        epoch, coming = self._sampler.epoch, batches(self._loader)
        while self._sampler.epoch == epoch:
            begun = time.perf_counter()
            taken = list(islice(coming, self.config.accumulation_steps))
            window = [batch for batch in taken if usable(batch, self.config)]
            data_s = time.perf_counter() - begun
            gradients = self._stepper.gradients(window) if window else None
            with uninterrupted():
                self._is_torn = True
                self._skipped += sum(len(batch.faults) for batch in taken)
                record = self._update(gradients, window) if gradients else None
                self._advance(len(taken))
                self._is_torn = False
            if record is not None:
                yield {**record, "data_s": data_s}

    def _update(self, gradients: Gradients, window: list[Batch]) -> Record:
        """Takes the optimizer step, and counts it."""
        epoch, studies = self._sampler.epoch, sum(len(batch.studies) for batch in window)
        position = Position(epoch, self._samples, studies, self.config.epochs * len(self._train))
        taken = self._stepper.update(gradients, position, self._step + 1)
        self._samples, self._step = self._samples + studies, self._step + 1
        where = {"samples": self._samples, "epoch": epoch, "step": self._step}
        return {**where, "skipped_samples": self._skipped, **taken}

    def _advance(self, micro_batches: int) -> None:
        self._sampler.start += micro_batches
        if self._sampler.start < len(self._sampler):
            return
        if not self._samples:
            raise InputError(f"data {self.config.data}: not one image of the training split can be read")
        self._sampler.epoch, self._sampler.start = self._sampler.epoch + 1, 0

    def _is_over(self) -> bool:
        return self._sampler.epoch > self.config.epochs

    def _is_evaluation_due(self) -> bool:
        every = self.config.eval_every_samples
        if every is None:
            return self._sampler.start == 0 and self._evaluated_at < self._samples
        return self._samples // every > self._evaluated_at // every

    def _evaluate(self) -> Record:
        self.save_if_changed()  # an evaluation takes long, and may be interrupted
        epoch = self._sampler.epoch if self._sampler.start else self._sampler.epoch - 1
        scores = self._eval_batch.run(self._scores)
        if self._is_over() and self._stepper.bad.in_a_row and math.isfinite(scores["val_loss"]):
            self._stepper.bad.end_row()  # there is no further step to end it, and the model is sound
        reached = _Best(not scores["collapsed"], scores["bleu_4"])
        if reached > self._best and self._is_sound():
            checkpoint.save(self._workdir / _BEST, self._weights(reached))
            self._best = reached
        self._evaluation = {"samples": self._samples, "epoch": epoch, **scores}
        self._evaluated_at = self._samples  # after the save: if that fails, the evaluation is still due
        self.save()
        return self._evaluation

    def _scores(self, batch_size: int) -> Record:
        config = self._evaluating(batch_size)
        return evaluate(self.model, self._splits, self._tokenizer, config, self._scorer)

    def _is_checkpoint_due(self) -> bool:
        every = self.config.checkpoint_every_steps
        return every is not None and self._step % every == 0

    def save_if_changed(self) -> None:
        """Writes the checkpoint unless it is current or an update was interrupted."""
        if self._saved_at < self._step and not self._is_torn:
            self._stepper.undo()
            self.save()

    def rescue(self) -> None:
        """Saves the progress made before an error, and prints on stderr what was saved."""
        last = self._workdir / _LAST
        try:
            with suppress(RuntimeError):  # torch raises once, at any point, if a worker was killed
                self.save_if_changed()
            self.save_if_changed()
        except Exception as fault:  # noqa: BLE001 - must not hide the error that ended the training
            _tell(f"{last}: what was trained before the error could not be saved: {fault}")
        if self._saved_at == self._step > 0:
            _tell(f"{last} has the {self._samples} samples before the error: the same command goes on there")

    def _is_sound(self) -> bool:
        return not self._stepper.bad.in_a_row and is_finite(self.model)

    def save(self) -> None:
        """Writes everything needed to resume exactly; does nothing once training has gone wrong.

        The checkpoint before a row of bad steps is the one to go back to if the row does not end.
        """
        if not self._is_sound():
            return
        state = {
            **self._weights(self._best),
            **self._stepper.state_dict(),
            "rng": checkpoint.rng_state(),
            "epoch": self._sampler.epoch,
            "start": self._sampler.start,
            "samples": self._samples,
            "step": self._step,
            "evaluated_at": self._evaluated_at,
            "evaluation": self._evaluation,
            "skipped": self._skipped,
            "left_out": self._left_out,
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
        self._stepper.load_state_dict(state)
        checkpoint.set_rng_state(state["rng"])
        steps = state["start"] // state["config"]["accumulation_steps"]  # saved between steps
        self._sampler.epoch, self._sampler.start = state["epoch"], steps * self.config.accumulation_steps
        self._samples, self._step = state["samples"], state["step"]
        # The annotation's current bad entries count. Older checkpoints do not list them separately.
        self._skipped += state["skipped"] - state.get("left_out", self._left_out)
        self._evaluated_at, self._evaluation = state["evaluated_at"], state["evaluation"]
        # Older checkpoints do not record collapse.
        self._best = _Best(not state.get("best_collapsed", False), state["best"])
        self._saved_at = self._step

    def _require_same_run(self, state: Mapping[str, Any], file: Path) -> None:
        """Raises InputError if the checkpoint is from a run with other settings or another vocabulary."""
        now = self.config.model_dump(mode="json")
        before = state["config"]
        free = _FREE | _REORDERING
        if self.config.schedule == "cosine":
            free = free - {"epochs"}
        if before["micro_batch_size"] * before["accumulation_steps"] == self.config.effective_batch_size:
            free = free | _CUT
        differ = [k for k in now if k not in free and k in before and before[k] != now[k]]
        if differ:
            diffs = ", ".join(f"{k} {before[k]!r}, now {now[k]!r}" for k in differ)
            raise InputError(f"{file}: comes from a run with other settings: {diffs}; use another directory")
        checkpoint.require_vocabulary(state["vocabulary"], self._tokenizer.vocabulary, file)


def _sizes(model: nn.Module) -> str:
    sizes = {parameter: parameter.numel() for parameter in model.parameters()}
    trained = sum(size for parameter, size in sizes.items() if parameter.requires_grad)
    return f"{sum(sizes.values()):,} parameters, {trained:,} of them trained"


def _tell(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)
