"""A variational autoencoder of sequences: `python train.py`, or `build(settings)` for a trainer of your own.

A GRU reads a sequence into a few latent units, and another one writes it again from them, symbol by symbol.
Such a model is prone to posterior collapse: its decoder learns to do without the latent units. Hiding symbols
from the decoder (Bowman et al., 2016) makes it need them.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from lightning import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler

DATA = Path(__file__).parent / "data"
SYMBOLS, BEGIN, NONE = 24, 24, 25  # what a sequence begins with, and what is beyond its end
LONGEST = 48  # of what is validated on, whatever is trained on
LATENT, WIDTH, HIDDEN = 8, 32, 48
ACTIVE_NATS = 0.2  # a latent unit that tells less of a sequence than this is collapsed

SETTINGS = {
    "data": {"batch_size": 16, "max_length": 48, "padding": "full", "bucketing": False, "workers": 0},
    "optim": {"lr": 2e-3},
    "word_dropout": 0.5,
    "kl_warmup_samples": 2000,
    "monitor_every": 10,
    "seed": 0,
}


class Buckets(Sampler[list[int]]):
    """Batches of sequences of similar length, in any order, each sequence once an epoch."""

    POOL = 16  # batches that are sorted by length together

    def __init__(self, lengths: Tensor, batch_size: int) -> None:
        self.lengths, self.batch_size = lengths, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.lengths) / self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        pools = torch.randperm(len(self.lengths)).split(self.POOL * self.batch_size)
        alike = [pool[self.lengths[pool].argsort()].split(self.batch_size) for pool in pools]
        batches = [batch.tolist() for pool in alike for batch in pool]
        return (batches[i] for i in torch.randperm(len(batches)).tolist())


class Sequences(LightningDataModule):
    """The beginnings of sequences, padded to max_length where `padding` is full, else to the longest.

    What is validated on is LONGEST at most, whatever is trained on, so that the score means the same.
    """

    def __init__(self, batch_size: int, max_length: int, padding: str, bucketing: bool, workers: int) -> None:
        super().__init__()
        self.batch_size, self.workers = batch_size, workers
        self.padded_to = max_length if padding == "full" else None
        self.held_out = read("val", LONGEST)
        self.training = read("train", max_length)
        self.lengths = torch.tensor([len(row) for row in self.training]) if bucketing else None

    def train_dataloader(self) -> DataLoader:
        how = {"num_workers": self.workers, "persistent_workers": self.workers > 0}
        if self.lengths is None:
            how |= {"batch_size": self.batch_size, "shuffle": True}
        else:
            how |= {"batch_sampler": Buckets(self.lengths, self.batch_size)}
        return DataLoader(self.training, collate_fn=self.padded, **how)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(sorted(self.held_out, key=len), batch_size=100, collate_fn=pad)

    def padded(self, rows: list[Tensor]) -> Tensor:
        batch = pad(rows)
        missing = (self.padded_to or 0) - batch.shape[1]
        return nn.functional.pad(batch, (0, max(missing, 0)), value=NONE)


def read(part: str, longest: int) -> list[Tensor]:
    column = pq.read_table(DATA / f"{part}.parquet")["symbols"]
    return [torch.tensor(row[:longest]) for row in column.to_pylist()]


def pad(rows: list[Tensor]) -> Tensor:
    """(batch, longest of them)"""
    return pad_sequence(rows, batch_first=True, padding_value=NONE)


def shifted(rows: Tensor) -> Tensor:
    """What is before each symbol."""
    return nn.functional.pad(rows[..., :-1], (1, 0), value=BEGIN)


class VAE(LightningModule):
    """Minimises the negative evidence lower bound; the KL term's weight grows from 0 to 1 at the start."""

    def __init__(
        self, lr: float, word_dropout: float, kl_warmup_samples: int, monitor_every: int, probe: Tensor
    ) -> None:
        super().__init__()
        self.lr, self.word_dropout = lr, word_dropout
        self.warmup, self.monitor_every = kl_warmup_samples, monitor_every
        self.register_buffer("probe", probe, persistent=False)
        self.register_buffer("samples", torch.zeros(()))
        self.symbols = nn.Embedding(NONE + 1, WIDTH, padding_idx=NONE)
        self.encoder = nn.GRU(WIDTH, HIDDEN, batch_first=True, bidirectional=True)
        self.posterior = nn.Linear(2 * HIDDEN, 2 * LATENT)
        self.decoder = nn.GRU(WIDTH + LATENT, HIDDEN, batch_first=True)
        self.scores = nn.Linear(HIDDEN + LATENT, SYMBOLS)

    def encode(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the logarithm of the variance of each latent unit, (batch, LATENT) each."""
        is_there = (batch != NONE)[..., None]
        read, _ = self.encoder(self.symbols(batch))
        mean, log_variance = self.posterior((read * is_there).sum(1) / is_there.sum(1)).chunk(2, dim=1)
        return mean, log_variance.clamp(-8, 8)

    def decode(self, latent: Tensor, batch: Tensor) -> Tensor:
        """The negative log-likelihood of each sequence in nats, (batch,), given its latent units."""
        before = shifted(batch)
        if self.training:
            is_hidden = torch.rand(before.shape, device=before.device) < self.word_dropout
            before = before.masked_fill(is_hidden, NONE)
        told = latent[:, None].expand(-1, batch.shape[1], -1)
        written, _ = self.decoder(torch.cat([self.symbols(before), told], dim=2))
        scores = self.scores(torch.cat([written, told], dim=2)).transpose(1, 2)
        return nn.functional.cross_entropy(scores, batch, ignore_index=NONE, reduction="none").sum(1)

    def bound(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """The bound's parts in nats: the reconstruction's, (batch,), and each unit's, (batch, LATENT)."""
        mean, log_variance = self.encode(batch)
        latent = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        return self.decode(latent, batch), divergence(mean, log_variance)

    def training_step(self, batch: Tensor) -> Tensor:
        reconstruction, kl = self.bound(batch)
        weight = (self.samples / self.warmup).clamp(max=1)
        self.samples += len(batch)
        loss = (reconstruction + weight * kl.sum(1)).sum() / (batch != NONE).sum()
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        if self.global_step % self.monitor_every == 0:
            with torch.no_grad():
                self.log_dict(per_unit(divergence(*self.encode(self.probe)), "probe"))

    def on_validation_epoch_start(self) -> None:
        self.seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def validation_step(self, batch: Tensor) -> None:
        self.seen.append((*self.bound(batch), (batch != NONE).sum(1)))

    def on_validation_epoch_end(self) -> None:
        reconstruction, kl, lengths = (torch.cat(part) for part in zip(*self.seen, strict=True))
        symbols = lengths.sum()
        self.log("val_nll", (reconstruction.sum() + kl.sum()) / symbols, prog_bar=True)
        self.log("val_reconstruction", reconstruction.sum() / symbols)
        self.log_dict(per_unit(kl, "val"))
        self.log("active_units", (kl.mean(0) > ACTIVE_NATS).float().sum())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(posterior || N(0, 1)) of each latent unit in nats (Kingma and Welling, 2014, appendix B)."""
    return (mean.square() + log_variance.exp() - 1 - log_variance) / 2


def per_unit(kl: Tensor, of: str) -> dict[str, Tensor]:
    return {f"{of}_kl_{unit}": value for unit, value in enumerate(kl.mean(0))}


def build(settings: Mapping[str, Any]) -> tuple[VAE, Sequences]:
    """The model and its data, from settings as SETTINGS has them."""
    seed_everything(settings["seed"], verbose=False)
    data = Sequences(**settings["data"])
    probe = pad(data.held_out[:256])
    model = VAE(
        settings["optim"]["lr"],
        settings["word_dropout"],
        settings["kl_warmup_samples"],
        settings["monitor_every"],
        probe,
    )
    return model, data


def naive_nll(held_out: list[Tensor]) -> dict[str, float]:
    """Nats per symbol where only its frequency is known: at all, and after the symbol before."""
    counts = torch.ones(SYMBOLS + 1, SYMBOLS)
    for row in read("train", LONGEST):
        counts.index_put_((shifted(row), row), torch.ones(()), accumulate=True)
    chances = {"unigram": counts.sum(0, keepdim=True).expand_as(counts), "bigram": counts}
    before, symbols = torch.cat(list(map(shifted, held_out))), torch.cat(held_out)
    return {
        name: -float((count / count.sum(1, keepdim=True)).log()[before, symbols].mean())
        for name, count in chances.items()
    }


def main() -> None:
    model, data = build(SETTINGS)
    print("val_nll without the model:", naive_nll(data.held_out), flush=True)
    how = {
        "max_epochs": 10,
        "gradient_clip_val": 1.0,
        "val_check_interval": 80,
        "check_val_every_n_epoch": None,
    }
    trainer = Trainer(**how, logger=CSVLogger("runs", name=""))
    trainer.fit(model, data)
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
