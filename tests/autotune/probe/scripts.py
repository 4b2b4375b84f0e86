"""Training scripts that know nothing of the tuner and take their settings in different ways."""

MODEL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Linear(4, 1)
"""

ARGPARSE = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=500)
parser.add_argument("--num-workers", type=int, default=0)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--hidden-batch", dest="bs", type=int, default=7)
args = parser.parse_args()
import torch
torch.manual_seed(args.seed)
{MODEL}
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for epoch in range(args.epochs):
    for x, y in DataLoader(data, args.batch_size, shuffle=True, num_workers=args.num_workers):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = nn.functional.mse_loss(model(x), y)
    print(f"epoch {{epoch}} train loss {{loss.item():.4f}} val loss {{after.item():.5f}}")
    open("result.txt", "a").write("done")
"""

# A configurator takes `--name=value`, batches come from no loader, and a schedule ends with the training.
GLOBALS = """
import sys
batch_size, learning_rate, max_iters, accumulation_steps = 4, 1e-2, 4000, 1
for word in sys.argv[1:]:
    name, value = word[2:].split("=")
    globals()[name] = type(globals()[name])(value)
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
for step in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * (1 - step / max_iters)
    optimizer.zero_grad()
    for _ in range(accumulation_steps):
        nn.functional.mse_loss(model(torch.randn(batch_size, 4)), torch.randn(batch_size, 1)).backward()
    optimizer.step()
    if step % 6 == 5:
        print(f"step {step}: val loss {1 / (step + 1):.4f}, val acc {step / max_iters:.2f}")
"""

# Its settings are constants; it finds a module and data beside itself.
AT_THE_TOP = """
from pathlib import Path
import torch
from torch import nn
import sizes

batch_size = 4  # sequences
max_iters = 4000
eval_interval = 6
learning_rate = 1e-2
torch.manual_seed(0)
weight = float((Path(__file__).parent / "weight.txt").read_text())
model = nn.Linear(sizes.WIDTH, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
for step in range(max_iters):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.randn(batch_size, sizes.WIDTH)), torch.randn(batch_size, 1)).backward()
    optimizer.step()
    if step % eval_interval == eval_interval - 1:
        print(f"step {step}: val loss {weight / (step + 1):.4f}")
"""

CONFIG = """
epochs: 500  # of the data
loader: {batch_size: 4, num_workers: 0}
optim:
  lr: 0.01
"""

# All settings are in a file.
CONFIGURED = f"""
import argparse, yaml
parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
config = yaml.safe_load(open(parser.parse_args().config))
{MODEL}
optimizer = torch.optim.SGD(model.parameters(), lr=config["optim"]["lr"])
for epoch in range(config["epochs"]):
    for x, y in DataLoader(data, shuffle=True, **config["loader"]):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"val loss {{loss.item():.5f}}")
"""

_CONFIGURED_BY_WORDS = f"""
{MODEL}
def train(config):
    optimizer = torch.optim.SGD(model.parameters(), lr=config.train.lr)
    for epoch in range(config.train.epochs):
        for x, y in DataLoader(data, config.train.batch_size):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {{epoch}} val loss {{loss.item():.5f}}")
from omegaconf import OmegaConf
defaults = OmegaConf.create({{"train": {{"lr": 0.01, "batch_size": 4, "epochs": 500}}}})
"""
OMEGACONF = f"{_CONFIGURED_BY_WORDS}train(OmegaConf.merge(defaults, OmegaConf.from_cli()))"
HYDRA = f"""{_CONFIGURED_BY_WORDS}
import hydra
from hydra.core.config_store import ConfigStore
ConfigStore.instance().store(name="config", node=defaults)
hydra.main(version_base=None, config_name="config")(train)()
"""

FIRE = f"""
import fire
{MODEL}
def train(epochs=500, batch_size=4, lr=0.01, shuffle=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for epoch in range(epochs):
        for x, y in DataLoader(data, batch_size, shuffle):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {{epoch}} val loss {{loss.item():.5f}}")
fire.Fire(train)
"""

# Nothing can be set from outside.
CONSTANTS = f"""
{MODEL}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(10_000):
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"eval_accuracy: {{epoch / 10_000 + 0.1:.4f}}")
"""

# It has no loader, and no optimizer either.
FIXED = """
import torch
weight = torch.zeros(4, requires_grad=True)
for step in range(100_000):
    (torch.randn(8, 4) @ weight - 1).pow(2).mean().backward()
    weight.data -= 0.01 * weight.grad
    weight.grad = None
    print("val loss", 1 / (step + 1))
"""

# Weights are updated by hand: no optimizer shows its rate.
BY_HAND = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--batch_size", type=int, default=4)
args = parser.parse_args()
import torch
torch.manual_seed(0)
{MODEL}
for step in range(100_000):
    x = torch.randn(3, args.batch_size, 4)
    loss = model(x).pow(2).mean()
    loss.backward()
    for parameter in model.parameters():
        parameter.data -= args.lr * parameter.grad
        parameter.grad = None
    if step % 10 == 9:
        print(f"| valid loss  {{loss.item():.6f}} | valid ppl  {{loss.exp().item():.6f}} |")
"""

BY_STEPS = f"""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--max-steps", type=int, default=100000)
args = parser.parse_args()
{MODEL}
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
"""

# Its first evaluation comes after more steps than a probe watches. Before it, it prints the training's loss.
LATE = f"""
{BY_STEPS}for step in range(args.max_steps):
    loss = nn.functional.mse_loss(model(torch.randn(4, 4)), torch.randn(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {{step}} loss {{loss.item():.4f}}")
    if step > 0 and step % 200 == 0:
        print(f"step {{step}} train loss: 0.5 test loss: {{1 / step:.6f}}")
"""

# The rate is the option's only after a warm-up, which a short training does not have.
WARM_UP = f"""
{BY_STEPS}for step in range(args.max_steps):
    optimizer.param_groups[0]["lr"] = 1e-5 if step < args.max_steps // 100 else args.lr
    loss = nn.functional.mse_loss(model(torch.randn(4, 4)), torch.randn(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"val loss: {{loss.item():.6f}}")
"""
