"""R2Gen with a loader whose worker hangs once, in the second epoch. Child processes import this module."""

import time

from r2gen import data, train


def fit(config, workdir):
    load, hung = data.ReportDataset.__getitems__, workdir / "hung"

    def hang(dataset, keys):
        if keys[0].epoch == 2 and not hung.exists():
            hung.touch()
            time.sleep(10**6)
        return load(dataset, keys)

    data.ReportDataset.__getitems__ = hang
    yield from train.fit(config, workdir)
