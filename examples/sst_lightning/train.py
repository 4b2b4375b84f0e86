"""Forecasts next month's sea-surface temperature with a small recursive transformer: `python train.py`.

The maps of `make_data.py` are cut into patches of latitude and longitude. A patch with its last twelve months
is a token, and one attention block is applied to all tokens again and again: a deeper network with shared
weights.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from lightning import LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

DATA = Path(__file__).parent / "data" / "sst.nc"
HISTORY, HELD_OUT = 12, 120  # months that a forecast sees, and months at the end to validate on
PATCH, WIDTH, HEADS, RECURSIONS = 4, 48, 4, 4

EPOCHS, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY = 30, 4, 1e-3, 0.01
PRECISION, ACCUMULATE, CLIP = "32-true", 4, 1.0
WORKERS = 0


class Windows(Dataset):
    """HISTORY months and the one after, of `targets`: anomalies from the `usual` map of the year's month.

    An item is the months before, (HISTORY, latitude, longitude), the month to forecast, both in kelvin and
    NaN on land, and which of the year's months that is. It is read when it is asked for; every worker opens
    the file.
    """

    def __init__(self, file: Path, targets: range, of_year: np.ndarray, usual: np.ndarray) -> None:
        self.file, self.targets, self.of_year, self.usual = file, targets, of_year, usual
        self.maps: xr.DataArray | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, int]:
        if self.maps is None:
            self.maps = xr.open_dataset(self.file, engine="h5netcdf", cache=False)["sst"]
        target = self.targets[index]
        months = slice(target - HISTORY, target + 1)
        anomalies = self.maps[months].to_numpy() - self.usual[self.of_year[months]]
        return anomalies[:-1], anomalies[-1], int(self.of_year[target])


class MonthlyMaps(LightningDataModule):
    """The file's months: the last HELD_OUT to validate on, those before to train on."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        with xr.open_dataset(file, engine="h5netcdf") as opened:
            maps = opened["sst"].load()
        first = len(maps) - HELD_OUT
        self.usual = maps[:first].groupby("valid_time.month").mean().to_numpy()
        self.latitude = maps["latitude"].to_numpy()
        of_year = maps["valid_time"].dt.month.to_numpy() - 1
        self.training = Windows(file, range(HISTORY, first), of_year, self.usual)
        self.held_out = Windows(file, range(first, len(maps)), of_year, self.usual)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.training,
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            num_workers=WORKERS,
            persistent_workers=WORKERS > 0,
            pin_memory=torch.cuda.is_available(),
        )

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.held_out, batch_size=60)


class Block(nn.Module):
    """Attention among tokens and a layer for each, (batch, tokens, WIDTH) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.each = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        query, key, value = self.mix(self.norm(tokens)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.attended(seen.transpose(1, 2).flatten(2))
        return tokens + self.each(tokens)


class RecursiveAttention(nn.Module):
    """The next month's anomalies, (batch, latitude, longitude), from those before and its number."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        rows, columns = shape[0] // PATCH, shape[1] // PATCH
        self.patches = nn.Conv2d(HISTORY, WIDTH, kernel_size=PATCH, stride=PATCH)
        self.row = nn.Parameter(0.02 * torch.randn(WIDTH, rows, 1))
        self.column = nn.Parameter(0.02 * torch.randn(WIDTH, 1, columns))
        self.month = nn.Embedding(12, WIDTH)
        self.depth = nn.Parameter(0.02 * torch.randn(RECURSIONS, WIDTH))
        self.block = Block()
        self.change = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, PATCH * PATCH))

    def forward(self, before: Tensor, month: Tensor) -> Tensor:
        tokens = self.patches(before) + self.row + self.column
        size = tokens.shape[-2:]
        tokens = tokens.flatten(2).transpose(1, 2) + self.month(month)[:, None]
        for depth in self.depth:
            tokens = self.block(tokens + depth)
        change = self.change(tokens).transpose(1, 2).unflatten(2, size)
        return before[:, -1] + nn.functional.pixel_shuffle(change, PATCH)[:, 0]


class Forecast(LightningModule):
    """Trains the network on the squared error at sea, each cell weighted by its area."""

    def __init__(self, latitude: np.ndarray, columns: int) -> None:
        super().__init__()
        self.network = RecursiveAttention((len(latitude), columns))
        area = torch.tensor(np.cos(np.radians(latitude)), dtype=torch.float32)
        self.register_buffer("area", area[:, None], persistent=False)
        self.seen = torch.zeros(2)

    def errors(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The sum of the squared errors in kelvin, and of the weights."""
        before, after, month = batch
        weight = self.area * ~after.isnan()
        forecast = self.network(before.nan_to_num(), month)
        return torch.stack([(weight * (forecast - after.nan_to_num()).square()).sum(), weight.sum()])

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        squared, weight = self.errors(batch)
        self.log("train_mse", squared / weight)
        return squared / weight

    def on_validation_epoch_start(self) -> None:
        self.seen = torch.zeros(2, device=self.device)

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor]) -> None:
        self.seen += self.errors(batch)

    def on_validation_epoch_end(self) -> None:
        self.log("val_rmse", (self.seen[0] / self.seen[1]).sqrt(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)


class BaseTrainer:
    """What every training of the group goes through: one way to make Lightning's Trainer, in one place."""

    def __init__(self, out: Path, epochs: int) -> None:
        self.trainer = Trainer(
            max_epochs=epochs,
            precision=PRECISION,
            accumulate_grad_batches=ACCUMULATE,
            gradient_clip_val=CLIP,
            logger=CSVLogger(out, name=""),
            log_every_n_steps=10,
            enable_progress_bar=False,
            enable_model_summary=False,
        )

    def train(self, model: LightningModule, data: LightningDataModule) -> float:
        """The RMSE in kelvin at the end."""
        self.trainer.fit(model, data)
        return float(self.trainer.callback_metrics["val_rmse"])


def naive_rmse(data: MonthlyMaps) -> dict[str, float]:
    """The RMSE in kelvin of forecasts that need no training: nothing unusual, and nothing new."""
    maps = [(before[-1], after) for before, after, _ in map(data.held_out.__getitem__, range(HELD_OUT))]
    last, truth = map(np.stack, zip(*maps, strict=True))
    weight = np.cos(np.radians(data.latitude))[:, None] * ~np.isnan(truth)
    forecasts = {"climatology": 0 * last, "persistence": last}
    return {
        name: float(np.sqrt(np.nansum(weight * (forecast - truth) ** 2) / weight.sum()))
        for name, forecast in forecasts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile the block, once for all recursions")
    args = parser.parse_args()
    seed_everything(args.seed)
    data = MonthlyMaps(DATA)
    print("val_rmse without training:", naive_rmse(data), flush=True)
    model = Forecast(data.latitude, data.usual.shape[-1])
    if args.compile:
        model.network.block.compile()
    print("val_rmse:", BaseTrainer(args.out, args.epochs).train(model, data), flush=True)


if __name__ == "__main__":
    main()
