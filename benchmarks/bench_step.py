"""Compares training steps with a plain implementation, in samples/s by batch, precision and CUDA graphs.

    python benchmarks/bench_step.py [--model small|full] [--batches 4 16] [--steps 5] [--graphs]

The plain form (benchmarks/plain.py) is eager, in PyTorch's default precision, and computes the padding. Each
side is a process, set up as its trainer does; they alternate steps over the same random batches with report
lengths as in IU X-Ray, and the medians are compared. `--together 4` prepares four configurations at once, and
needs the memory of all. Memory is the GPU's peak, or the process's without one; TFLOP/s count the model's own
operations without padding, and MFU is their share of a known GPU's dense peak.
"""

import argparse
import multiprocessing
import random
import resource
import statistics
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import plain
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from autotune.core.flops import utilisation as utilised
from r2gen import optim, precision
from r2gen.clock import Stopwatch
from r2gen.config import Config, parse
from r2gen.data import Batch, normalise
from r2gen.errors import InputError
from r2gen.host import tune_allocator
from r2gen.model import R2Gen, loss_sum
from r2gen.optim import Position
from r2gen.packing import Packing
from r2gen.step import Stepper

VOCABULARY = 760
LENGTHS = (14, 23, 28, 36, 46, 60, 60)  # quantiles of ids per report in IU X-Ray's training split
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
SMALL = {"visual_extractor": "small", "image_size": 96, "d_model": 128, "d_ff": 256, "num_layers": 2}
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
PARTS = ("input", "visual extractor", "relational memory", "rest", "optimizer")

Step = Callable[[Tensor, Tensor, list[int]], None]
Data = list[tuple[Tensor, Tensor, list[int]]]


def batch(size: int, image_size: int, rng: random.Random) -> tuple[Tensor, Tensor, list[int]]:
    """Returns images uint8 [B, 2, S, S], targets [B, T], and the number of counted positions per report."""
    lengths = [_length(rng) for _ in range(size)]
    targets = torch.zeros(size, max(lengths) + 2, dtype=torch.long)
    for row, length in enumerate(lengths):
        targets[row, 1 : length + 1] = torch.tensor([rng.randrange(1, VOCABULARY) for _ in range(length)])
    images = torch.randint(256, (size, 2, image_size, image_size), dtype=torch.uint8)
    return images, targets, [length + 1 for length in lengths]


def _length(rng: random.Random) -> int:
    at = rng.random()
    right = next(i for i, q in enumerate(QUANTILES) if q > at)
    share = (at - QUANTILES[right - 1]) / (QUANTILES[right] - QUANTILES[right - 1])
    return round(LENGTHS[right - 1] + share * (LENGTHS[right] - LENGTHS[right - 1])) - 2


def plain_step(config: Config) -> Step:
    model = R2Gen(config, VOCABULARY).to(precision.device())
    optimizer = plain.optimizer(model, config)

    def run(images: Tensor, targets: Tensor, lengths: list[int]) -> None:
        del lengths
        loss = plain.loss(model, normalise(images), targets)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_value_(model.parameters(), config.grad_clip_value)
        optimizer.step()

    return run


def our_step(config: Config) -> Step:
    if precision.device().type == "cpu":
        tune_allocator()
    model = R2Gen(config, VOCABULARY).to(precision.device())
    precision.convert(model, config)
    if config.channels_last:
        model.visual_extractor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stepper = Stepper(model, config)

    def run(images: Tensor, targets: Tensor, lengths: list[int]) -> None:
        del lengths
        size = len(images)
        gradients = stepper.gradients([Batch(images, targets, torch.arange(size), ())])
        stepper.update(gradients, Position(1, 0, size, size), 1)

    return run


def batches(config: Config, size: int, count: int) -> Data:
    rng, device = random.Random(0), precision.device()
    torch.manual_seed(0)
    made = (batch(size, config.image_size, rng) for _ in range(count))
    return [(images.to(device), targets.to(device), lengths) for images, targets, lengths in made]


def serve(pipe: Connection, config: Config, size: int, count: int, *, ours: bool) -> None:
    """Serves one side: sends the seconds of each step requested by index; at None, memory and shares."""
    data = batches(config, size, count)
    with precision.backends(config):
        step = our_step(config) if ours else plain_step(config)
        while (index := pipe.recv()) is not None:
            watch = Stopwatch(precision.device())
            step(*data[index])
            watch.mark("step")
            pipe.send(watch.seconds()["step"])
        peak = peak_bytes()
        is_simple = ours and config.compile == "off" and config.precision == "fp32"
        pipe.send((peak, shares(config, data) if is_simple else {}, flops(config, data) if ours else 0))


def flops(config: Config, data: Data) -> int:
    """Counts the floating-point operations of the first step after the warm-up, forward and backward."""
    model = R2Gen(parse({**config.model_dump(), "precision": "fp32"}), VOCABULARY).to(precision.device())
    images, targets, lengths = data[1]
    with FlopCounterMode(display=False) as counter:
        packing = Packing.from_lengths(lengths, images.device)
        summed = loss_sum(model(normalise(images), targets, packing), targets)
        torch.autograd.backward(summed / sum(lengths))
    return int(counter.get_total_flops())


def utilisation(tflops_per_s: float, name: str) -> str:
    """Formats TFLOP/s, with MFU if the GPU's dense peak is known."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    share = utilised({name: tflops_per_s * 1e12}, 1.0, device)
    return f"{tflops_per_s:.2f}" + ("" if share is None else f" ({share:.0%})")


def peak_bytes() -> int:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved()  # a recording keeps memory
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shares(config: Config, data: Data) -> dict[str, float]:
    """Returns the share of each part of the model in a step, forward and backward, each run separately."""
    device = precision.device()
    model = R2Gen(config, VOCABULARY).to(device)
    if config.channels_last:
        model.visual_extractor.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = optim.optimizer(model, config)
    total = dict.fromkeys(PARTS, 0.0)
    for images, targets, lengths in data:
        packing = Packing.from_lengths(lengths, device)
        watch = Stopwatch(device)
        views = normalise(images)
        watch.mark("input")
        patches = torch.cat([model.visual_extractor(view) for view in views.unbind(1)], dim=1)
        torch.autograd.backward(patches.sum())
        watch.mark("visual extractor")
        decoder = model.encoder_decoder
        words = packing.pack(decoder.model.tgt_embed(targets[:, :-1])).detach().requires_grad_()
        memory = decoder.model.rm(words, decoder.model.rm.initial(len(targets)), packing.running)
        torch.autograd.backward(memory.sum())
        watch.mark("relational memory")
        summed = loss_sum(decoder(patches.detach(), targets, packing), targets)
        torch.autograd.backward(summed / sum(lengths))
        watch.mark("rest")
        optim.clip(model.parameters(), config.grad_clip_value)
        optimizer.step()
        watch.mark("optimizer")
        for part, value in watch.seconds().items():
            total[part] += value
    total["rest"] -= total["relational memory"]  # the rest includes it
    whole = sum(total.values())
    return {part: value / whole for part, value in total.items()}


def configurations(
    base: dict[str, Any], names: Sequence[str], modes: Sequence[str], formats: Sequence[bool]
) -> Iterator[Config]:
    """Yields the named precisions that this machine supports, in each memory format, also with graphs."""
    for name in names:
        for channels_last in formats:
            for mode in modes:
                settings = {"precision": name, "compile": mode, "channels_last": channels_last}
                config = parse({**base, **settings})
                try:
                    precision.check(config, precision.capability())
                except InputError:
                    continue
                yield config


def name_of(config: Config) -> str:
    words = [config.precision, "channels_last" if config.channels_last else ""]
    words.append("" if config.compile == "off" else config.compile)
    return " ".join(filter(None, words))


def compare(configs: Sequence[Config], size: int, steps: int) -> None:
    """Prints a row for each of `configs`: all alternating over the same batches with the plain form.

    The first step of each, which records the graphs, is taken at the same time, and does not count.
    """
    context = multiprocessing.get_context("spawn")
    settings = {"precision": "torch-default", "compile": "off", "channels_last": False}
    plainly = parse({**configs[0].model_dump(), **settings})
    pipes = []
    for side, config in enumerate((plainly, *configs)):
        ours, theirs = context.Pipe()
        arguments = (theirs, config.model_copy(update={"micro_batch_size": size}), size, steps + 1)
        context.Process(target=serve, args=arguments, kwargs={"ours": bool(side)}, daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.send(0)
    for pipe in pipes:
        pipe.recv()
    seconds: list[list[float]] = [[] for _ in pipes]
    for index in range(1, steps + 1):
        for pipe, times in zip(pipes, seconds, strict=True):
            pipe.send(index)
            times.append(pipe.recv())
    answers = []
    for pipe in pipes:
        pipe.send(None)
        answers.append(pipe.recv())
    plain_s, (plain_bytes, _, _) = statistics.median(seconds[0]), answers[0]
    for config, times, (our_bytes, parts, step_flops) in zip(configs, seconds[1:], answers[1:], strict=True):
        ours_s = statistics.median(times)
        rates = f"{size / plain_s:.2f} | {size / ours_s:.2f} | {plain_s / ours_s:.2f}x"
        memory = f"{plain_bytes / 2**30:.1f} | {our_bytes / 2**30:.1f}"
        shares_text = ", ".join(f"{part} {share:.0%}" for part, share in parts.items())
        used = utilisation(step_flops / times[0] / 1e12, config.precision)
        print(f"| {size} | {name_of(config)} | {rates} | {memory} | {used} | {shares_text} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("small", "full"), default="full")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument(
        "--formats", nargs="+", choices=("plain", "channels_last"), default=["plain", "channels_last"]
    )
    parser.add_argument("--together", type=int, default=1)
    options = parser.parse_args()
    base = {"data": "none", **(SMALL if options.model == "small" else {})}
    speeds, memory = ("plain samples/s", "ours samples/s", "ratio"), ("plain GiB", "ours GiB")
    columns = ("batch", "ours", *speeds, *memory, "TFLOP/s (MFU)", "shares of our time")
    print("|".join(("", *(f" {name} " for name in columns), "")))
    print("| --- " * len(columns) + "|")
    modes = ("off", "cuda-graphs") if options.graphs else ("off",)
    for size in options.batches:
        formats = [name == "channels_last" for name in options.formats]
        found = list(configurations(base, options.precisions, modes, formats))
        for at in range(0, len(found), options.together):
            compare(found[at : at + options.together], size, options.steps)


if __name__ == "__main__":
    main()
