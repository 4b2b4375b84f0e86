"""A plain script for the check, which knows nothing of the tuner: `python script.py BATCH [MEBIBYTES]`.

It trains until it is ended, on its local rank's GPU, with other processes if a launcher has started several.
It holds so many mebibytes more.
"""

import os
import sys

import torch
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 50  # per epoch


def main(batch_size: int, mebibytes: int) -> None:
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    net: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    )
    net = net.to(device)
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group()
        net = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    held = torch.ones(mebibytes, 2**20, dtype=torch.uint8, device=device)
    data = TensorDataset(torch.randn(BATCHES * batch_size, 256), torch.randn(BATCHES * batch_size, 1))
    while True:
        for inputs, outputs in DataLoader(data, batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(inputs.to(device)), outputs.to(device))
            torch.autograd.backward(loss)
            optimizer.step()
        print(f"bleu_4 0.{len(held) % 10}5", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
