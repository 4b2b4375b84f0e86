"""Every step of a training without knowledge of the tuner is reported, with its samples."""

import ast
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from autotune.inside.inbox import SITE, Inbox
from autotune.inside.messages import GpuLost, Step
from autotune.inside.site.autotune_saves import Counts, digest_of, notes_file, read_notes
from tests.autotune.inside.heard import all_of, contents

KINDS = [
    "loader",
    "workers",
    "accumulation",
    "zero",
    "fetched_ahead",
    "an_iterator_a_batch",
    "scaler",
    "two_optimizers",
    "another_optimizer",
    "fused",
    "by_hand",
    "without_backward",
    "twice_a_batch",
    "three_at_once",
    pytest.param("compiled", marks=pytest.mark.slow),
    "iterable",
    "batched_by_the_dataset",
    "lists_of_samples",
    "backward_of_several",
    "checkpointed",
    "without_a_loader",
    "forks",
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_reported_with_its_samples(hear, kind):
    heard = hear(kind)
    assert heard.said, heard.errors
    assert heard.samples == heard.said
    assert ("autotune" in heard.errors) == (kind == "by_hand"), heard.errors


def test_steps_are_stamped_in_order_and_now_and_then_have_their_memory_and_loss(hear):
    heard = hear("scaler")
    stamps = [message.at_s for message in heard.messages]
    assert stamps == sorted(stamps)
    assert heard.steps[0].figures["memory_script_bytes"] > 0
    assert not all("memory_script_bytes" in step.figures for step in heard.steps), "looking takes a while"
    assert 0 < heard.steps[0].figures["train_loss"] < 8, "the scaler's factor is taken out again"
    assert not all("train_loss" in step.figures for step in heard.steps), "not every step waits for it"


def test_the_operations_of_the_first_steps_are_reported(hear):
    told = [step.figures.get("step_flops") for step in hear("loader").steps]
    assert told[0] is None
    assert told[1]["fp32"] > 0
    assert not any(told[3:])


@pytest.mark.slow
def test_a_model_that_is_compiled_while_operations_are_counted_is_compiled_and_not_counted(hear):
    heard = hear("compiled_late")
    assert heard.said == 1, heard.errors
    assert not any("flops" in step.figures for step in heard.steps)


def test_the_number_of_trained_parameters_is_reported_once(hear):
    told = [step.figures.get("trained_parameters") for step in hear("loader").steps]
    assert told == [5] + [None] * (len(told) - 1)
    first = hear("loader", RANK="0", WORLD_SIZE="4")
    assert not any("trained_parameters" in step.figures for step in first.steps), "others may hold the rest"


def test_a_nan_loss_is_reported_with_every_step(hear):
    losses = [step.figures.get("train_loss") for step in hear("diverging").steps]
    told = [loss for loss in losses if loss is not None]
    assert math.isfinite(told[0])
    assert len(told) < len(losses), "a number is told now and then"
    since = next(i for i, loss in enumerate(losses) if loss is not None and math.isnan(loss))
    assert all(loss is not None and math.isnan(loss) for loss in losses[since:])


@pytest.mark.slow
def test_a_step_in_which_torch_has_compiled_is_marked(hear):
    marked = ["is_compiling" in step.figures for step in hear("compiled").steps]
    assert marked[0]
    assert not marked[1]


def test_the_first_rank_reports_for_all(hear):
    assert hear("loader", RANK="1", WORLD_SIZE="4").messages == []
    first = hear("loader", RANK="0", WORLD_SIZE="4")
    assert first.samples == [4 * samples for samples in first.said]


def test_a_step_with_unseen_batches_has_the_samples_of_the_settings(hear):
    assert hear("without_a_loader", AUTOTUNE_STEP_SAMPLES="8").samples == [8] * 3


def test_the_settings_choose_between_two_loaders_or_a_note_is_printed(hear):
    heard = hear("labelled_and_not", AUTOTUNE_STEP_SAMPLES="4")
    assert heard.samples == heard.said
    assert "autotune" not in heard.errors
    unsaid = hear("labelled_and_not", AUTOTUNE_STEP_SAMPLES="5")
    notes = [step.figures["note"] for step in unsaid.steps if "note" in step.figures]
    assert len(notes) == 1
    assert "each step draws 4 and 12 samples from 2 loaders: 4 are counted" in notes[0]
    assert notes[0] in unsaid.errors


def test_a_checkpoint_is_recognised_only_by_its_content(hear, tmp_path):
    given = {"AUTOTUNE_WORKDIR": str(tmp_path), "AUTOTUNE_BEGUN": '{"samples": 100}'}
    heard = hear("saved_in_many_ways", **given)
    found = read_notes(notes_file(str(tmp_path)))
    seen = {name: found.get(digest_of(tmp_path / name)) for name in heard.said}
    assert heard.said, heard.errors
    assert seen == {name: known and Counts(100 + known) for name, known in heard.said.items()}


def test_the_error_that_ends_a_training_is_reported_and_printed(hear):
    heard = hear("fails")
    assert heard.samples == [4, 4]
    assert heard.messages[-1].content.type == "torch.OutOfMemoryError"
    assert heard.messages[-1].content.message == "CUDA out of memory. Tried to allocate 2 GiB"
    assert heard.errors.splitlines()[-1].startswith("torch.OutOfMemoryError: CUDA out of memory")


def test_the_offset_is_added_to_every_seed_of_a_training(hear):
    usual, other, again = (hear("seeded", **env).said for env in ({}, {"AUTOTUNE_SEED": "1"}, {}))
    assert usual == again
    assert not set(usual) & set(other)


def test_the_offset_reaches_the_gpu_by_every_seeding_function(hear):
    usual, other = (hear("seeded_on_a_gpu", **env).said for env in ({}, {"AUTOTUNE_SEED": "1"}))
    assert usual == [3, 3, 3]
    assert other == [4, 4, 4]


def script(tmp_path, text, path=(), **environment):
    """Runs a script with the hook on its path, as a command does."""
    (tmp_path / "script.py").write_text(text)
    with Inbox() as inbox:
        given = os.environ | inbox.environment() | environment
        given["PYTHONPATH"] = os.pathsep.join(map(str, (SITE, *path)))
        command = [sys.executable, str(tmp_path / "script.py")]
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        return done, all_of(inbox)


TRAINS = """
import torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(7, 4), 4):
    net(x).mean().backward()
    optimizer.step()
"""


def test_an_unmodified_script_is_observed(tmp_path):
    done, messages = script(tmp_path, TRAINS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [message.content.samples for message in messages] == [4, 3]


def test_the_environments_own_sitecustomize_runs_and_nothing_is_imported_for_it(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('the own one')")
    text = "import sys, sitecustomize\nprint(sitecustomize.__file__, 'torch' in sys.modules)\n1 / 0"
    done, messages = script(tmp_path, text, [own])
    assert done.stdout.splitlines() == ["the own one", f"{own / 'sitecustomize.py'} False"]
    assert "ZeroDivisionError" in done.stderr
    assert [message.content.type for message in messages] == ["ZeroDivisionError"]


def test_a_sitecustomize_that_fails_fails_as_it_does_without_the_hook(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise ValueError('the own one')")
    done, messages = script(tmp_path, "1 / 0", [own])
    assert "ValueError: the own one" in done.stderr
    assert [message.content.type for message in messages] == ["ZeroDivisionError"]


def test_a_script_that_looks_for_torch_and_does_not_import_it_leaves_the_hook_armed(tmp_path):
    (tmp_path / "torch.py").write_text("optim = None")
    text = "import importlib.util; assert importlib.util.find_spec('torch'); import torch; print(torch.optim)"
    done, messages = script(tmp_path, text, [tmp_path])
    assert (done.returncode, done.stdout) == (0, "None\n"), "what is no torch is not touched"
    assert done.stderr.startswith("autotune: torch is left unchanged: ")
    assert messages == []


def test_modules_on_a_scripts_path_need_only_python_38():
    names = {file.stem for file in SITE.glob("*.py")}
    for file in SITE.glob("*.py"):
        tree = ast.parse(file.read_text(), feature_version=(3, 8))
        for node in ast.walk(tree):
            found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            found += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in found} <= {*sys.stdlib_module_names, *names}, file


class Stream:
    """A GPU stream that is busy or idle."""

    def __init__(self):
        self.is_busy = self.is_capturing = False
        self.waits = 0

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return self.is_capturing

    def device_count(self):
        return 1

    def current_stream(self, device):
        assert not self.is_capturing, "to ask would end the recording"
        return SimpleNamespace(query=lambda: not self.is_busy)

    def synchronize(self, device):
        self.waits += 1


@pytest.fixture
def gpu(monkeypatch):
    stream = Stream()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=stream))
    return stream


def test_a_training_that_runs_ahead_of_its_gpu_waits_now_and_then(gpu):
    from autotune.inside.site.autotune_figures import Pace

    pace = Pace()
    assert all(pace.has_settled() for _ in range(3)), "it has done all"
    assert gpu.waits == 0
    gpu.is_busy = True
    settled = [pace.has_settled() for _ in range(100)]
    assert settled[0]
    assert gpu.waits == sum(settled) < 20


def test_a_gpu_is_not_queried_during_a_graph_capture(gpu):
    from autotune.inside.site import autotune_figures

    gpu.is_capturing = True
    assert autotune_figures.is_capturing()
    assert autotune_figures.Pace().has_settled()


@pytest.mark.parametrize(
    ("rank", "fractions"),
    [
        ({}, [[0.25, 0], [0.25, 1]]),
        ({"LOCAL_RANK": "1"}, [[0.25, 1]]),
        ({"LOCAL_RANK": "2"}, [[0.25, 0], [0.25, 1]]),
    ],
    ids=str,
)
def test_the_cap_is_on_the_ranks_own_gpu_or_on_all_and_keeps_the_current_gpu(hear, rank, fractions):
    assert hear("capped", AUTOTUNE_MEMORY_CAP_BYTES=str(2 * 2**30), **rank).said == [fractions, 0]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "current"), [("spawned", [0, 0]), ("spawned_selecting", [0, 1])])
def test_a_spawned_rank_caps_only_the_gpu_that_it_uses(hear, kind, current):
    of_ranks = hear(kind, AUTOTUNE_MEMORY_CAP_BYTES=str(2 * 2**30)).said
    at_first = [[[0.25, 0]], [[0.25, 1]]] if kind == "spawned_selecting" else [[], []]
    assert of_ranks == [[rank, at_first[rank], [[0.25, rank]], current[rank]] for rank in (0, 1)]


CANNOT = re.compile(r"torch \S+ in \S.* (is a build without CUDA: install|cannot use the trial's GPU: )")
CHOSE = re.compile("the script trains on the CPU, but torch can use the trial's GPU: train on that")


@pytest.mark.parametrize(
    ("kind", "why"),
    [("loader", CANNOT), ("needs_a_gpu", CANNOT), ("on_the_host", CHOSE), ("pinned", CHOSE)],
)
def test_a_training_off_the_gpu_of_its_trial_is_reported_before_its_first_step(hear, kind, why):
    heard = hear(kind, AUTOTUNE_GPUS="1.0")
    [lost] = contents(heard.messages, GpuLost)
    assert Step not in heard.kinds[: heard.kinds.index(GpuLost)]
    assert why.match(lost.reason)
    assert lost.reason.endswith(", or give trials no GPU: --gpus-per-trial 0")
    assert not contents(hear(kind).messages, GpuLost), "it was given none"


def test_a_training_that_uses_its_gpu_is_left_alone(hear):
    heard = hear("offloaded", AUTOTUNE_GPUS="0.5")
    assert (len(heard.steps), len(heard.messages)) == (2, 2), heard.errors


class Loader:
    """A loader from before Python 3.4, which cannot be wrapped to act after an import."""

    def create_module(self, spec):
        return None


def test_an_old_kind_of_loader_is_left_unchanged(monkeypatch, capsys):
    from autotune.inside.site.autotune_imports import After

    old = SimpleNamespace()  # an old finder, without find_spec
    found = SimpleNamespace(find_spec=lambda name, path, target: SimpleNamespace(loader=Loader()))
    monkeypatch.setattr(sys, "meta_path", [old, found])
    after = After()
    after.do("no_such_module", print)
    assert isinstance(after.find_spec("no_such_module").loader, Loader)
    assert after.find_spec("another") is None
    assert "is left unchanged: AttributeError" in capsys.readouterr().err
