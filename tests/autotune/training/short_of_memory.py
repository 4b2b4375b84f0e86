"""R2Gen, out of memory with more than two studies once it has a checkpoint. Child processes import it."""

import torch

from r2gen import train


def fit(config, workdir):
    build = train.build

    def refuse(module, given, found):
        if len(given[0]) > 2 and (workdir / "last.pt").exists():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def built(*given):
        model, tokenizer = build(*given)
        model.encoder_decoder.register_forward_hook(refuse)
        return model, tokenizer

    train.build = built
    yield from train.fit(config, workdir)
