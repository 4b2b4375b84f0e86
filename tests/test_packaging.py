"""What a user installs: the wheel, in an environment of its own, used from a directory of its own."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from autotune.inside.inbox import SITE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TOY = ROOT / "tests" / "autotune" / "toy_workload.py"
TEMPLATES = ("autotune/reports/templates", "r2gen/compared/templates")
SPACE = """
workload: toy_workload:fit
baseline: {micro_batch_size: 4, learning_rate: 1e-3, step_s: 0.002}
knobs: {micro_batch_size: {choice: [4, 8]}}
budget: {samples_per_trial: 400, repeats: 0}
"""


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", target, ROOT)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A new environment with the wheel. Its dependencies are this environment's: copying takes minutes."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home)
    interpreter = home / "bin" / "python"
    site = Path(run(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    pip = (sys.executable, "-m", "pip", "--python", interpreter)
    run(*pip, "install", "--quiet", "--no-deps", wheel)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def test_the_wheel_has_the_search_spaces_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("cpu", "gpu", "gpu-small", "laptop-8gb"):
        assert f"autotune/search_spaces/{name}.yaml" in names
    assert "autotune/search_spaces/schema.json" in names
    assert {f"autotune/inside/site/{file.name}" for file in SITE.glob("*.py")} <= set(names)
    assert {name.split("/")[0] for name in names} <= {"autotune", "r2gen"} | {
        name.split("/")[0] for name in names if ".dist-info" in name
    }


def test_the_wheel_has_what_the_report_is_made_of(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"{place}/{file.name}" for place in TEMPLATES for file in (ROOT / place).iterdir()}
    assert {Path(name).suffix for name in wanted} == {".j2", ".css", ".js"}
    assert wanted <= names


def test_an_installed_wheel_searches_from_another_directory(python, tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "toy_workload.py").write_text(TOY.read_text())
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    where = run(python, "-c", "import autotune; print(autotune.__file__)", cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(python.parents[1])
    said = run(
        python.parent / "autotune",
        *("search", "--space", "space.yaml", "--session", "s", "--trials", "2", "--wandb", "off"),
        cwd=tmp_path,
        env=environment,
    )
    assert "python -m autotune export s -o best.yaml" in said


def test_every_pinned_version_satisfies_what_the_project_asks_for():
    """`constraints.txt` names every direct dependency, so that a fresh install is the tested one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {normal(line.partition("==")[0]) for line in lines if "==" in line}
    missing = {name for name in map(normal, (name_of(w) for w in wanted)) if name not in pinned}
    assert not missing


def name_of(requirement):
    return requirement.split(">=")[0].split("[")[0].strip()


def normal(name):
    return name.lower().replace("_", "-").replace(".", "-")
