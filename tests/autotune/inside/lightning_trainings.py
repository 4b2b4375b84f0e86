"""Small Lightning trainings without knowledge of the tuner. Each prints its own observations as JSON.

They run in their own processes, with the hook armed.
"""

import json
import os
import pickle
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import lightning
import pytorch_lightning
import torch
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

warnings.simplefilter("ignore")
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
}


class Trained:
    """Records the batch size of each step, and the results of validations."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
        self.seen, self.held, self.found = [], 0, []

    def training_step(self, batch, index):
        self.held += len(batch[0])
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def optimizer_step(self, *args, **kwargs):
        super().optimizer_step(*args, **kwargs)
        self.seen.append(self.held)
        self.held = 0

    def validation_step(self, batch, index):
        self.log("val/loss", self._loss(batch))

    def on_validation_epoch_end(self):
        self.found.append(float(self.trainer.callback_metrics["val/loss"]))

    test_step = validation_step

    def _loss(self, batch):
        return ((self.net(batch[0]) - batch[1]) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Net(Trained, lightning.LightningModule):
    """A module of the `lightning` package."""


class Older(Trained, pytorch_lightning.LightningModule):
    """A module of the older `pytorch_lightning` package."""


class Manual(Net):
    """Steps two optimizers per batch itself."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.other = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        for optimizer, net in zip(self.optimizers(), (self.net, self.other), strict=True):
            optimizer.zero_grad()
            self.manual_backward(net(batch[0]).pow(2).mean())
            optimizer.step()
        self.seen.append(len(batch[0]))

    def configure_optimizers(self):
        return [torch.optim.Adam(net.parameters()) for net in (self.net, self.other)]


class Stream(IterableDataset):
    """An iterable data set of unknown length: a batch is fetched ahead."""

    def __iter__(self):
        return iter(data(20))


def data(size):
    torch.manual_seed(0)
    return TensorDataset(torch.randn(size, 4), torch.randn(size, 1))


def fit(net=None, batches=None, ckpt_path=None, **arguments):
    """Trains two epochs of 22 samples in batches of 8, validating after each; returns the trainer."""
    trainer = lightning.Trainer(**{**QUIET, "max_epochs": 2, **arguments})
    batches = DataLoader(data(22), 8, shuffle=True) if batches is None else batches
    trainer.fit(net or Net(), batches, DataLoader(data(9), 3), ckpt_path=ckpt_path)
    return trainer


def steps(**arguments):
    net = arguments.pop("net", None) or Net()
    fit(net, **arguments)
    return net.seen


def automatic():
    return steps()


def accumulated():
    return steps(accumulate_grad_batches=2)


def half():
    return steps(precision="16-mixed")


def manual():
    return steps(net=Manual())


def stream():
    return steps(batches=DataLoader(Stream(), 4))


def logged():
    """Returns the results of the two validations of a fit, without those before and after the fit."""
    net = Net()
    trainer = lightning.Trainer(**QUIET)
    trainer.validate(net, DataLoader(data(9), 3), verbose=False)
    net.found.clear()
    fit(net).test(net, DataLoader(data(9), 3), verbose=False)
    return net.found


def older():
    net = Older()
    trainer = pytorch_lightning.Trainer(**QUIET, max_epochs=1)
    trainer.fit(net, DataLoader(data(22), 8), DataLoader(data(9), 3))
    return net.found


class Own(lightning.Trainer):
    """A trainer that takes no callbacks, and forwards its positional arguments."""

    def __init__(self, max_epochs, precision):
        super().__init__(**QUIET, max_epochs=max_epochs, precision=precision)


def arguments():
    """Returns the arguments of trainers created in two ways."""
    usual = lightning.Trainer(**QUIET, max_epochs=3, default_root_dir="mine")
    return [
        [one.max_epochs, one.precision, one.num_sanity_val_steps, one.default_root_dir == "mine"]
        for one in (usual, Own(2, "64-true"))
    ]


def watching(**hooks):
    """Returns a callback with these hooks."""
    watch = lightning.Callback()
    vars(watch).update(hooks)
    return watch


def kill(*_):
    os.kill(os.getpid(), signal.SIGTERM)


def goes_on():
    """Returns the step and epoch at the start, and at the end; without the hook it would start anew."""
    begun = []
    watch = watching(on_train_start=lambda one, _: begun.extend([one.global_step, one.current_epoch]))
    trainer = fit(callbacks=[watch], ckpt_path="last")
    return [*begun, trainer.global_step, trainer.current_epoch]


def terminated():
    """Gets SIGTERM in its second step."""
    fit(callbacks=[watching(on_train_batch_end=lambda *args: kill() if args[-1] == 1 else None)])


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(4), torch.zeros(1)


def terminated_in_a_validation():
    """Gets SIGTERM in an endless validation."""
    trainer = lightning.Trainer(**QUIET, max_epochs=1, callbacks=[watching(on_validation_start=kill)])
    trainer.fit(Net(), DataLoader(data(8), 8), DataLoader(Endless(), 4))


def seeded():
    lightning.seed_everything(3)
    return float(torch.rand(1))


def sent():
    """Returns the callbacks of a trainer that is pickled."""
    mine = lightning.Trainer(**QUIET).callbacks[-1]
    return [type(mine).__name__, type(pickle.loads(pickle.dumps(mine))).__name__]


def watched():
    """Returns the callbacks that Lightning has found."""
    return [type(one).__name__ for one in lightning.Trainer(**QUIET).callbacks]


def agreed():
    """Yields the number of saves after each validation, for both decisions of the first process."""
    watch, saved = lightning.Trainer(**QUIET).callbacks[-1], []
    watch._save = saved.append
    for own_s, is_saved in ((float("inf"), True), (0.0, False)):
        watch._save_again_s = own_s
        strategy = SimpleNamespace(broadcast=lambda _, said=is_saved: said)
        state = SimpleNamespace(fn="fit")
        watch.on_validation_end(
            SimpleNamespace(sanity_checking=False, state=state, callback_metrics={}, strategy=strategy), None
        )
        yield len(saved)


def sharded():
    """Yields the contents of a checkpoint that is a directory after each save."""
    import autotune_lightning

    whole = Path(autotune_lightning._checkpoint())
    for name in "abc":
        part = whole.with_suffix(".part")
        part.mkdir()
        (part / name).touch()
        autotune_lightning._replace(str(part), str(whole))
        yield [place.name for place in whole.iterdir()]


def built():
    """Trains with both packages, from everything a function may return: loaders, a data module, a trainer."""
    import autotune_lightning

    module = lightning.LightningDataModule.from_datasets(data(8), data(4), batch_size=4)
    settings = {"trainer": {"max_epochs": 1, "accelerator": "cpu", "logger": False}}
    loaders = (DataLoader(data(8), 8), DataLoader(data(4), 4))
    given = [
        (Net(), module),
        (Older(), loaders),
        (Net(), loaders[0], lightning.Trainer(**QUIET, max_epochs=2)),
    ]
    for one in given:
        autotune_lightning.train(one, settings)
    return [one[0].seen for one in given]


class Configured(Net):
    """A module whose optimizer comes from a config."""

    configure_optimizers = lightning.LightningModule.configure_optimizers


class Data(lightning.LightningDataModule):
    def __init__(self, batch_size: int = 4):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(data(22), self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(data(9), 3)


def command_line():
    """Trains with `LightningCLI`, which refuses to write its config into the same directory twice."""
    quiet = [f"--trainer.{name}={value}" for name, value in QUIET.items()]
    arguments = ["fit", "--trainer.max_epochs=1", "--optimizer=SGD", "--optimizer.lr=0.5", *quiet]
    cli = LightningCLI(Configured, Data, args=arguments)
    return [cli.trainer.precision, cli.trainer.optimizers[0].param_groups[0]["lr"], cli.model.seen]


def tell(name):
    said = globals()[name]()
    print(json.dumps(list(said) if isinstance(said, Iterator) else said))
