"""A training script as many are: it has its own flags, prints its score, and knows nothing of the tuner.

A small network learns which arm of a drawn spiral a point is on. It takes seconds on a CPU.
"""

import argparse
import math
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ARMS = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--steps", type=int, default=4000, help="optimizer steps of the whole training")
    parser.add_argument("--eval_every", type=int, default=250, help="steps between two evaluations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save_dir", type=Path, default=Path("runs"))
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    return parser.parse_args()


def spirals(points: int, seed: int) -> TensorDataset:
    """Points of the plane, with noise, and the arm that each is on."""
    generator = torch.Generator().manual_seed(seed)
    arm = torch.randint(ARMS, (points,), generator=generator)
    radius = torch.rand(points, generator=generator)
    angle = 4 * radius + 2 * math.pi / ARMS * arm + 0.6 * torch.randn(points, generator=generator)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), arm)


def evaluate(model: nn.Module, held_out: DataLoader) -> float:
    """The mean loss over the points held out, in nats."""
    model.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(model(x), arm, reduction="sum") for x, arm in held_out]
    model.train()
    return sum(losses).item() / len(held_out.dataset)


def main() -> None:
    args = arguments()
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, ARMS))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    training = DataLoader(spirals(8192, seed=1), batch_size=args.batch_size, shuffle=True, drop_last=True)
    held_out = DataLoader(spirals(1024, seed=2), batch_size=256)
    step = 0
    if args.resume:
        saved = torch.load(args.resume, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    args.save_dir.mkdir(parents=True, exist_ok=True)
    while step < args.steps:
        for x, arm in training:
            loss = nn.functional.cross_entropy(model(x), arm)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.eval_every == 0 or step == args.steps:
                print(f"step {step} val_loss: {evaluate(model, held_out):.4f}", flush=True)
                saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(saved, args.save_dir / "last.pt")
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
