"""Small training projects as people write them: the input of `init`. Only `RUNNABLE` has to run."""

from textwrap import dedent

OF_CONSTANTS = {
    "train.py": '''
        """A language model; every constant can be given, as --batch_size=32."""
        import torch
        from model import Model

        out_dir = 'out'
        eval_interval = 500
        batch_size = 12  # sequences in a micro-batch
        gradient_accumulation_steps = 5 * 8
        learning_rate = 6e-4
        min_lr = learning_rate / 10
        max_iters = 60000
        warmup_iters = 200
        init_from = 'scratch'
        device = 'cuda'
        dtype = 'bfloat16' if torch.cuda.is_available() else 'float16'
        compile = True
        exec(open('configurator.py').read())
        not_a_setting = 3

        model = Model()
        if init_from == 'resume':
            model.load_state_dict(torch.load(os.path.join(out_dir, 'ckpt.pt')))
        for step in range(max_iters):
            if step % eval_interval == 0:
                losses = evaluate(model)
                print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
                torch.save(model.state_dict(), os.path.join(out_dir, 'ckpt.pt'))
            loss = model(step)
            loss.backward()
            print(f"iter {step}: loss {loss.item():.4f}")
    ''',
    "model.py": "class Model: pass\n",
    "sample.py": "import torch\nfor _ in range(3):\n    print('sampled')\n",
}
OF_ARGUMENTS = {
    "main.py": """
        import argparse
        from modules.trainer import Trainer

        def arguments():
            parser = argparse.ArgumentParser()
            parser.add_argument('--ann_path', type=str, default='data/annotation.json')
            parser.add_argument('--batch_size', type=int, default=16, help='samples in a batch')
            parser.add_argument('--num_workers', type=int, default=2)
            parser.add_argument('--epochs', type=int, default=100)
            parser.add_argument('--save_dir', type=str, default='results')
            parser.add_argument('--monitor_mode', type=str, default='max', choices=['min', 'max'])
            parser.add_argument('--monitor_metric', type=str, default='BLEU_4')
            parser.add_argument('--lr_ve', type=float, default=5e-5)
            parser.add_argument('--lr_ed', type=float, default=1e-4)
            parser.add_argument('--amsgrad', type=bool, default=True)
            parser.add_argument('--seed', type=int, default=9233, help='.')
            parser.add_argument('--fp16', action='store_true')
            parser.add_argument('--resume', type=str, help='a checkpoint')
            return parser.parse_args()

        if __name__ == '__main__':
            Trainer(arguments()).train()
    """,
    "modules/__init__.py": "",
    "modules/trainer.py": r"""
        import torch

        class Trainer:
            def train(self):
                log = {'val_' + name: score for name, score in self.scores()}
                for key, value in log.items():
                    print('\t{:15s}: {}'.format(str(key), value))
                torch.save(self.state, os.path.join(self.place, 'current_checkpoint.pth'))
                torch.save(self.state, os.path.join(self.place, 'model_best.pth'))
    """,
    "data/annotation.json": "{}",
    "tests/test_main.py": "import main\nmain.train()\n",
}
OF_HYDRA = {
    "src/train.py": """
        import hydra
        import lightning

        @hydra.main(version_base=None, config_path="../configs", config_name="train")
        def main(config):
            hydra.utils.instantiate(config.trainer).fit(hydra.utils.instantiate(config.model))

        if __name__ == "__main__":
            main()
    """,
    "src/module.py": """
        class Module(LightningModule):
            def validation_step(self, batch, number):
                self.log("val/acc", self.accuracy, prog_bar=True)
                self.log("val/loss", self.loss)
    """,
    "configs/train.yaml": """
        # @package _global_
        defaults:
          - _self_
          - data: images
          - model: small
          - logger: null
        seed: null
        ckpt_path: null
    """,
    "configs/data/images.yaml": "batch_size: 128\nnum_workers: 0\nplace: ${paths.data}\n",
    "configs/model/small.yaml": "_target_: src.module.Module\noptimizer: {lr: 0.001}\n",
    "configs/logger/csv.yaml": 'csv: \n  name: "csv/"\n',
}
OF_TRANSFORMERS = {
    "finetune.py": """
        from dataclasses import dataclass, field
        from transformers import HfArgumentParser, Trainer, TrainingArguments

        @dataclass
        class ModelArguments:
            model_name_or_path: str = field(metadata={"help": "the model to begin with"})
            max_seq_length: int = field(default=128)

        def main():
            parser = HfArgumentParser((ModelArguments, TrainingArguments))
            model, training = parser.parse_args_into_dataclasses()
            Trainer(args=training).train()

        if __name__ == "__main__":
            main()
    """
}
OF_LIGHTNING = {
    "main.py": """
        from lightning.pytorch.cli import LightningCLI
        from lightning import LightningModule, LightningDataModule

        class Net(LightningModule):
            def __init__(self, width: int = 64, lr: float = 1e-3): pass
            def validation_step(self, batch):
                self.log("val_loss", 0.0)

        class Images(LightningDataModule):
            def __init__(self, batch_size: int = 32, num_workers: int = 4): pass

        if __name__ == "__main__":
            LightningCLI(Net, Images)
    """
}
RUNNABLE = {
    "train.py": '''
        """Fits a line; prints its validation loss every few steps."""
        import argparse
        import os

        import torch

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=16)
        parser.add_argument("--lr", type=float, default=1e-2)
        parser.add_argument("--steps", type=int, default=100000)
        parser.add_argument("--eval-every", type=int, default=200)
        parser.add_argument("--save-dir", default="out")
        parser.add_argument("--resume", action="store_true")
        parser.add_argument("--seed", type=int, default=0)


        def main():
            args = parser.parse_args()
            torch.manual_seed(args.seed)
            truth, held_out = torch.randn(64, 1), torch.randn(256, 64)
            model = torch.nn.Linear(64, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
            file = os.path.join(args.save_dir, "last.pt")
            begun = 0
            if args.resume:
                state = torch.load(file)
                model.load_state_dict(state["model"])
                begun = state["step"]
            for step in range(begun + 1, args.steps + 1):
                x = torch.randn(args.batch_size, 64)
                loss = torch.nn.functional.mse_loss(model(x), x @ truth)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % args.eval_every == 0:
                    with torch.no_grad():
                        error = torch.nn.functional.mse_loss(model(held_out), held_out @ truth)
                    print(f"step {step}: validation loss {error.item():.5f}", flush=True)
                    torch.save({"model": model.state_dict(), "step": step}, file + ".part")
                    os.replace(file + ".part", file)  # it may be stopped while it saves


        if __name__ == "__main__":
            main()
    '''
}


def make(place, files):
    """The project in the directory `place`, which it returns."""
    for name, text in files.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip("\n"))
    return place
