"""Real scripts, run as commands: their reports and their ends."""

import json
import os
import re
import signal
import time
from itertools import islice
from pathlib import Path

import psutil
import pytest

from autotune.core.errors import InputError
from autotune.inside import stop_request
from autotune.inside.site.autotune_saves import Counts
from autotune.workloads.command.counting import Checkpoint
from autotune.workloads.command.ending import CommandError
from autotune.workloads.command.stream import Stream
from autotune.workloads.command.training import Grace
from autotune.workloads.command.workload import CommandWorkload
from tests import forked

ROOT = Path(__file__).parents[4]
STEPS = {"steps": r"^step", "quality": {"acc": r"acc ([\d.]+)"}}
BATCH = {"effective_batch_size": 8}
SHORT = Grace(ended_s=0.3)
pytestmark = pytest.mark.usefixtures("_without_compiler")
# Trains, evaluates at every second step, and resumes from its checkpoint.
TRAINS = """
import json, os, signal, sys, time
file = sys.argv[1] + "/last.json"
done = json.load(open(sys.argv[2])) if len(sys.argv) > 2 else 0
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
while done < 1000 and not told:
    time.sleep(0.02)
    print("step", done := done + 1)
    if done % 2 == 0:
        print("acc", done / 1000)
time.sleep(0.02)
json.dump(done, open(file, "w"))
"""
TORCH = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
data = TensorDataset(torch.ones(32, 4), torch.ones(32, 1))
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=int(sys.argv[2])):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    time.sleep(0.3)
    print(f"acc {epoch + 1}")
    time.sleep(0.1)  # for a machine so busy that the line is read later
"""


def figures(records):
    return [dict(record) for record in records]


def family_of(workdir):
    """Returns the processes of the trial with this workdir."""
    mark = ("AUTOTUNE_WORKDIR", str(workdir))
    return [one.pid for one in psutil.process_iter() if mark in environment_of(one)]


def environment_of(process):
    try:
        return process.environ().items()
    except (psutil.Error, OSError):
        return ()


def test_steps_and_scores_come_as_they_happened(command, workdir):
    text = "for i in range(1, 4):\n    print('step', i)\nprint('acc 0.5', end='')"
    records = list(command(text, **STEPS).fit(BATCH, workdir))
    assert figures(records) == [
        {"samples": 8},
        {"samples": 16},
        {"samples": 24},
        {"samples": 24, "acc": 0.5},
    ]
    stamps = [record.at_s for record in records]
    assert stamps == sorted(stamps)
    assert stamps[-1] <= time.monotonic()


@pytest.mark.slow
def test_a_score_counts_when_a_progress_bar_shows_it_and_not_when_it_is_overwritten(command, workdir):
    text = """
import time
for epoch in range(1, 4):
    for _ in range(4):
        print("step")
    print(f"\\repoch {epoch} acc 0.{epoch}", end="")
    time.sleep(4)  # a busy machine may notice the silence late
"""
    found = figures(command(text, **STEPS).fit(BATCH, workdir))
    assert [(r["samples"], r["acc"]) for r in found if "acc" in r] == [(32, 0.1), (64, 0.2), (96, 0.3)]


@pytest.mark.slow
def test_a_pytorch_script_needs_no_pattern_for_its_steps(command, workdir):
    workload = command(TORCH, "{optim.lr} {batch}")
    records = figures(workload.fit({"optim": {"lr": 0.1}, "batch": 12}, workdir))
    steps = [record for record in records if "acc" not in record]
    assert [record["samples"] for record in steps] == [12, 24, 32, 44, 56, 64]
    assert [(r["samples"], r["acc"]) for r in records if "acc" in r] == [(32, 1.0), (64, 2.0)]
    assert any("train_loss" in record for record in steps)
    assert any(record.get("memory_script_bytes", 0) > 0 for record in steps)


def test_the_script_has_its_settings_its_environment_and_its_own_words(command, workdir, capfd):
    text = (
        "import os, sys\nprint(sys.argv[1:], os.environ['THREADS'], os.getcwd())\n"
        "print(sys.path[2])\nprint('step\\nacc 1')"
    )
    workload = command(
        text,
        "--name={name} {betas} --dir {workdir}",
        environment={"THREADS": "{threads}", "PYTHONPATH": "/own/{name}"},
        flags={"compile": {True: "--compile"}},
        **STEPS,
    )
    settings = {"name": "a b'; ls", "betas": [1, 2], "threads": 3, "compile": True}
    list(workload.fit(settings, workdir))
    wanted = ["--name=a b'; ls", "1", "2", "--dir", str(workdir), "--compile"]
    assert f"{wanted} 3 {workload.directory}\n/own/{settings['name']}\n" in capfd.readouterr().out


def test_the_workdir_is_the_same_wherever_the_command_runs(command, workdir, monkeypatch):
    monkeypatch.chdir(workdir.parent)
    text = "import sys\nopen(sys.argv[1] + '/made', 'w')\nprint('step\\nacc 1')"
    workload = command(
        text,
        "{workdir}",
        **STEPS,
        directory="elsewhere",
        run=f"python {workdir.parent}/script.py {{workdir}}",
    )
    workload.directory.mkdir()
    list(workload.fit(BATCH, Path("work")))
    assert (workdir / "made").exists()


def test_a_hanging_script_shows_its_stack(command, workdir, capfd):
    stuck = "def waits():\n    os.kill(os.getpid(), signal.SIGUSR1)\nwaits()"
    text = f"import os, signal\n{stuck}\nprint('step\\nacc 1')"
    list(command(text, **STEPS).fit(BATCH, workdir))
    assert "line 3 in waits" in capfd.readouterr().out


def test_a_script_may_report_by_itself(command, workdir):
    text = "import autotune\nautotune.report(samples=5)\nautotune.report(samples=5, acc=0.25)"
    records = figures(command(text, quality="reported").fit({}, workdir))
    assert records == [{"samples": 5}, {"samples": 5, "acc": 0.25}]


def test_a_script_may_report_its_samples_and_print_its_score(command, workdir):
    text = "import autotune\nautotune.report(samples=5)\nprint('acc 0.25')"
    records = figures(command(text).fit(BATCH, workdir))
    assert records == [{"samples": 5}, {"samples": 5, "acc": 0.25}]


def test_what_the_script_counts_itself_counts(command, workdir):
    text = "print('seen 12,000\\nseen 13,000\\nacc 1')"
    records = figures(command(text, samples=r"seen ([\d,]+)").fit(BATCH, workdir))
    assert records == [{"samples": 12000}, {"samples": 13000}, {"samples": 13000, "acc": 1.0}]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (
            {"jsonl": "{workdir}/log.jsonl"},
            "import json\njson.dump({'val': {'acc': 0.5}}, log)\nlog.write('\\n')",
        ),
        ({"csv": "{workdir}/log.*"}, "log.write('step,val.acc\\n1,\\n2,0.5\\n')"),
    ],
)
def test_scores_are_found_in_a_file(command, workdir, keys, text):
    script = (
        "import sys, time\nprint('step')\ntime.sleep(0.3)\n"
        f"log = open(sys.argv[1] + '/log.jsonl', 'w')\n{text}\n"
        "log.close()\ntime.sleep(0.3)\nprint('step')"
    )
    workload = command(script, "{workdir}", steps="step", quality={"acc": "val.acc"}, **keys)
    records = figures(workload.fit(BATCH, workdir))
    assert records == [{"samples": 8}, {"samples": 8, "acc": 0.5}, {"samples": 16}]


def test_it_resumes_from_its_checkpoint_with_its_samples(command, workdir):
    keys = {"resume": "{workdir}/last.json", **STEPS}
    first = command(TRAINS, "{workdir}", **keys).fit(BATCH, workdir)
    seen = list(islice(first, 20))
    first.close()
    saved = json.loads((workdir / "last.json").read_text())
    again = command(TRAINS, "{workdir}", **keys).fit(BATCH, workdir)
    went_on = next(again)["samples"]
    again.close()
    assert saved * 8 >= seen[-1]["samples"]
    assert went_on == (saved + 1) * 8


SAVES_AND_IS_KILLED = """
import os, signal, sys, time, torch
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step, x in enumerate(torch.utils.data.DataLoader(torch.ones(80, 4), 8), 1):
    net(x).sum().backward()
    optimizer.step()
    if step == 3:
        torch.save(step, sys.argv[1] + "/last.pt")
        os.kill(os.getppid(), signal.SIGKILL)  # who listens; this process dies with it
        time.sleep(600)
"""
LISTENS = """
import json, sys
from pathlib import Path
from autotune.workloads.command.workload import CommandWorkload
values, directory = json.loads(sys.argv[1]), Path(sys.argv[2])
list(CommandWorkload.parse(values, directory).fit({}, directory / "work"))
"""


@pytest.mark.long
def test_a_command_killed_right_after_saving_resumes_counting_there(command, workdir):
    workload = command(SAVES_AND_IS_KILLED, "{workdir}", resume="--from {workdir}/last.pt")
    given = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(ROOT)])}
    arguments = (json.dumps(workload.value), workdir.parent)
    assert forked.run(arguments, workdir, given, script=LISTENS, warm="trainer").returncode == -signal.SIGKILL
    assert Checkpoint(str(workdir / "last.pt"), workdir).counts() == Counts(24)


def test_without_a_checkpoints_sample_count_it_starts_anew(command, workdir, capfd):
    fit = command(TRAINS, "{workdir}", resume="{workdir}/last.json", **STEPS).fit
    (workdir / "last.json").write_text("5")
    records = fit(BATCH, workdir)
    assert next(records)["samples"] == 8
    records.close()
    assert (
        "it is not known at how many samples the checkpoint was saved; the training starts from the beginning"
        in capfd.readouterr().out
    )
    assert (workdir / ".rejected" / "last.json").read_text() == "5"


def test_without_a_checkpoint_it_begins_anew(command, workdir):
    for _ in range(2):
        records = command(TRAINS, "{workdir}", **STEPS).fit(BATCH, workdir)
        assert next(records)["samples"] == 8
        records.close()
        (workdir / "last.json").unlink()


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("raise ValueError('no\\nway')", "ValueError", "no\nway"),
        ("raise MemoryError('none')", "MemoryError", "none"),
        ("import sys; sys.exit('bad arguments')", "CommandError", "exited with 1: bad arguments"),
        ("import os; os.kill(os.getpid(), 11)", "CommandError", "killed by SIGSEGV"),
        ("print('step'); import sys; sys.exit(3)", "CommandError", "exited with 3: step"),
        ("pass", "CommandError", "workload.steps: '^step' matched no line; workload.quality.acc"),
        ("print('step')", "CommandError", r"workload.quality.acc: 'acc ([\\d.]+)' matched no line; the last"),
        ("print('acc 1')", "CommandError", "'^step' matched no line; the last lines of its output: acc 1"),
        ("print('step'); print('acc .')", "CommandError", "found no number, but '.'"),
    ],
)
def test_a_bad_end_is_one_reason(command, workdir, text, error, said):
    with pytest.raises(Exception, match=re.escape(said)) as raised:
        list(command(text, **STEPS).fit(BATCH, workdir))
    assert type(raised.value).__name__ == error


def test_scores_without_a_step_end_a_running_command(command, workdir):
    text = "import time\nfor i in range(1000):\n    print('acc', i)\n    time.sleep(0.05)"
    with pytest.raises(CommandError, match="no optimizer step was seen"):
        list(command(text).fit(BATCH, workdir))
    assert family_of(workdir) == []


def test_a_long_training_without_a_score_is_ended_with_its_last_lines(command, workdir):
    text = "import time\nwhile True:\n    print('step')\n    time.sleep(0.001)"
    wanted = (
        r"no score came within [\d,]+ samples; a trial has 80; .*acc.* matched no line; "
        r"the last lines of its output: step"
    )
    with pytest.raises(CommandError, match=wanted):
        list(command(text, **STEPS).fit({**BATCH, "trial_samples": 80}, workdir))


def test_the_output_may_be_anything(command, workdir):
    text = (
        "import os\nos.write(1, bytes(range(256)) * 4000)\nos.write(1, b'x' * 10**6)\n"
        "os.write(1, b'\\rstep 1\\rstep 2\\racc 0.5\\r')"
    )
    records = figures(command(text, **STEPS).fit(BATCH, workdir))
    assert records == [{"samples": 8}, {"samples": 16}, {"samples": 16, "acc": 0.5}]


def test_processes_that_survive_the_command_are_killed(command, workdir):
    text = (
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint('step\\nacc 1')\nsys.exit(1)"
    )
    with pytest.raises(CommandError, match="exited with 1: acc 1"):
        list(command(text, **STEPS).fit(BATCH, workdir))
    assert family_of(workdir) == []


def test_a_command_that_continues_in_the_background_is_reported(command, workdir):
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)"
    with pytest.raises(
        CommandError, match="before a process that it had started: it must train in the foreground"
    ):
        list(command(text).fit(BATCH, workdir, grace=SHORT))
    assert family_of(workdir) == []


def test_an_untraceable_writer_does_not_delay_the_end_forever(command, workdir):
    text = (
        "import subprocess\nprint('step\\nacc 1', flush=True)\n"
        "writes = ['/bin/sh', '-c', 'while echo y; do sleep 0.05; done']\n"
        "subprocess.Popen(writes, env={}, start_new_session=True)"
    )
    records = figures(command(text, **STEPS).fit(BATCH, workdir, grace=SHORT))
    assert records[-1] == {"samples": 8, "acc": 1.0}


def test_closing_ends_all_that_it_has_started(command, workdir):
    text = (
        "import signal, subprocess, sys, time\nsubprocess.Popen(['sleep', '600'])\n"
        "while True:\n    print('step')\n    time.sleep(0.05)"
    )
    records = command(text, **STEPS).fit(BATCH, workdir)
    next(records)
    assert len(family_of(workdir)) == 2
    records.close()
    assert family_of(workdir) == []


def test_a_script_that_ignores_sigterm_is_killed(command, workdir):
    text = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True:\n    print('step')\n    time.sleep(0.05)"
    )
    records = command(text, **STEPS).fit(BATCH, workdir, grace=SHORT)
    next(records)
    records.close()
    assert family_of(workdir) == []


def test_a_missing_program_is_reported(tmp_path, workdir):
    values = {"run": "no-such-program", **STEPS}
    with pytest.raises(InputError, match=r"no-such-program cannot be started in .*: No such file"):
        list(CommandWorkload.parse(values, tmp_path).fit({}, workdir))


SCORES_AMONG_STEPS = """
import sys, time, torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 201):
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
    if step % 10 == 0:
        print(f"acc {step}", file=sys.stderr if step % 20 else sys.stdout)
"""


@pytest.mark.slow
def test_a_score_counts_at_the_step_that_it_was_printed_after_however_late_it_is_read(
    command, workdir, monkeypatch
):
    heard = Stream.hear

    def slowly(stream, *line):
        time.sleep(0.03)
        return heard(stream, *line)

    monkeypatch.setattr(Stream, "hear", slowly)
    records = figures(command(SCORES_AMONG_STEPS).fit({}, workdir))
    scored = [(record["samples"], record["acc"]) for record in records if "acc" in record]
    assert scored == [(step, step) for step in range(10, 201, 10)]


LOGS = """
import os, sys, time, torch
{before}
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 51):
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
    if step % 10 == 0:
        {log}
"""
WRITES = """
from {module} import SummaryWriter
writer, other = (SummaryWriter(os.path.join(sys.argv[1], name)) for name in ("val", "train"))
"""
ADDS = "writer.add_scalar('val/acc', step, step); other.add_scalar('val/acc', -1, step)"
STARTS = "import wandb\nwandb.init(mode='offline', dir=sys.argv[1])"


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "before", "log"),
    [
        ({"tensorboard": "{workdir}/val"}, WRITES.format(module="tensorboardX"), ADDS),
        ({"tensorboard": "{workdir}/val"}, WRITES.format(module="torch.utils.tensorboard"), ADDS),
        ({"wandb": "{workdir}"}, STARTS, "wandb.log({'val': {'acc': torch.tensor(step)}})"),
    ],
)
def test_what_is_logged_counts_at_once_and_to_the_end_of_the_script(command, workdir, place, before, log):
    workload = command(LOGS.format(before=before, log=log), "{workdir}", quality={"acc": "val/acc"}, **place)
    records = figures(workload.fit({}, workdir))
    scored = [(record["samples"], record["acc"]) for record in records if "acc" in record]
    assert scored == [(step, step) for step in range(10, 51, 10)]


def test_scores_that_were_not_logged_are_named(command, workdir):
    with pytest.raises(CommandError) as error:
        list(command("", quality={"acc": "val/acc"}, tensorboard="{workdir}/val").fit({}, workdir))
    assert (
        "workload.tensorboard: acc: no 'val/acc' was found in {workdir}/val; only scores that Python"
        in str(error.value)
    )


def note(workdir):
    """Writes a note that the existing checkpoint has seen 80 samples."""
    (workdir / ".samples").write_text('{"samples": 80, "tokens": null, "stamp": "by script"}')


def test_an_unusable_checkpoint_is_set_aside_once_and_then_reported(command, workdir, capfd):
    fit = command(TRAINS, "{workdir}", resume="{workdir}/last.json", **STEPS).fit
    (workdir / "last.json").write_text("half a check")
    note(workdir)
    records = fit(BATCH, workdir)
    assert next(records)["samples"] == 8
    records.close()
    assert "JSONDecodeError" in capfd.readouterr().out
    assert (workdir / ".rejected" / "last.json").read_text() == "half a check"
    assert json.loads((workdir / "last.json").read_text()) > 0
    (workdir / "last.json").write_text("half a check")
    note(workdir)
    with pytest.raises(
        CommandError, match=r"^while continuing from its checkpoint: JSONDecodeError: Expecting"
    ):
        next(fit(BATCH, workdir))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import sys; sys.exit('no such option: --resume' if sys.argv[1:] else 'anew')",
            "^exited with 1: anew",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            "^while continuing from its checkpoint: .* killed by signal: Killed",
        ),
    ],
)
def test_a_resumed_command_that_fails_has_its_reason(command, workdir, text, said):
    (workdir / "last.json").touch()
    note(workdir)
    with pytest.raises(CommandError, match=said):
        next(command(text, resume="{workdir}/last.json", **STEPS).fit(BATCH, workdir))


def test_a_checkpoint_of_the_users_own_is_left_in_place(command, workdir):
    pretrained = workdir.parent / "pretrained.pt"
    pretrained.touch()
    keys = {"resume": {"file": str(pretrained), "arguments": "--from"}, **STEPS}
    with pytest.raises(CommandError, match=r"^while continuing from its checkpoint: exited with 1: no"):
        next(command("import sys; sys.exit('no')", **keys).fit(BATCH, workdir))
    assert pretrained.exists()


def test_a_whole_training_that_cannot_resume_is_not_restarted(command, workdir, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_WHOLE", "1")
    fit = command(TRAINS, "{workdir}", resume="{workdir}/last.json", **STEPS).fit
    (workdir / "last.json").write_text("half a check")
    note(workdir)
    with pytest.raises(
        CommandError, match=r"^while continuing from its checkpoint: JSONDecodeError: Expecting"
    ):
        next(fit(BATCH, workdir))
    assert (workdir / "last.json").read_text() == "half a check"


def test_a_whole_training_resumes_from_a_checkpoint_without_a_note(command, workdir, monkeypatch, capsys):
    """A kill came between the checkpoint and its note, so the note belongs to the previous checkpoint."""
    monkeypatch.setenv("AUTOTUNE_WHOLE", "1")
    fit = command(TRAINS, "{workdir}", resume="{workdir}/last.json", **STEPS).fit
    (workdir / "last.json").write_text("11")
    (workdir / ".samples").write_text('{"samples": 80, "tokens": null, "stamp": "1 1"}')
    assert next(fit(BATCH, workdir)) == {"samples": 88}
    assert "continues from the checkpoint, after at least 80 samples" in capsys.readouterr().out
    assert not (workdir / ".rejected").exists()


def test_a_whole_training_need_not_be_evaluated(command, workdir, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_WHOLE", "1")
    assert figures(command("print('step')", **STEPS).fit(BATCH, workdir)) == [{"samples": 8}]
    with pytest.raises(CommandError, match="matched no line"):
        list(command("pass", **STEPS).fit(BATCH, workdir))


SAVES_SLOWLY = """
import signal, sys, time
def saves(*_):
    time.sleep(1.0)
    open(sys.argv[1] + "/saved", "w")
    sys.exit(143)
signal.signal(signal.SIGTERM, saves)
print("step", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_stop_leaves_the_time_to_save_that_a_training_has(command, workdir, monkeypatch, is_whole):
    grace, asked = Grace(ended_s=0.1), []
    if is_whole:
        monkeypatch.setenv("AUTOTUNE_WHOLE", "1")
        grace = grace._replace(saving_s=0.1)
    fit = command(SAVES_SLOWLY, "{workdir}", **STEPS).fit
    records = fit(BATCH, workdir, grace=grace, is_asked=lambda: bool(asked))
    assert next(records) == {"samples": 8}
    asked.append(True)
    with pytest.raises(stop_request.StoppedError):
        next(records)
    assert (workdir / "saved").exists()


LAST_WORDS = """
import signal, sys, time
def ends(*_):
    print("acc 0.75", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, ends)
print("step", flush=True)
time.sleep(600)
"""


def test_a_stop_is_noticed_within_an_evaluation_and_the_end_is_reported(command, workdir):
    asked = []
    records = command(LAST_WORDS, **STEPS).fit(BATCH, workdir, is_asked=lambda: bool(asked))
    assert next(records) == {"samples": 8}
    asked.append(True)
    assert next(records) == {"samples": 8, "acc": 0.75}
    with pytest.raises(stop_request.StoppedError):
        next(records)
    assert family_of(workdir) == []
