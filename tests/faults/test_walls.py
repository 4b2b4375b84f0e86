"""Another user of the machine can neither read from a search nor write to it."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from autotune.engines import engine_cluster, ray_internals
from autotune.engines.engine_cluster import TOKEN
from tests import forked

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

# Ray and multiprocessing as in a search, without the search.
DRIVER = """
import json, os, sys
from multiprocessing import forkserver, util
import ray
from autotune.engines import engine_cluster
from autotune.system import scratch
from autotune.system.telemetry import hardware
with scratch.private() as guardian, engine_cluster.private_cluster(hardware(), guardian, print):
    forkserver.ensure_running()
    address = ray.get_runtime_context().gcs_address
    kept = ray.get(ray.remote(lambda: "a task runs").remote())
    changed = [name for name in os.environ if name.startswith("RAY_AUTH")]
    print(json.dumps({"address": address, "directory": str(guardian.directory), "task": kept,
                      "server": forkserver._forkserver._forkserver_address, "changed": changed}), flush=True)
    sys.stdin.readline()
    util._run_finalizers()  # its directory is still there to be removed
"""


@pytest.fixture(scope="module")
def told():
    """Starts our Ray; yields the facts for the intruder, more than an attacker could find out."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        try:
            said = json.loads(driver.stdout.readline())
            yield said | facts(psutil.Process(driver.pid), Path(said["directory"]))
        finally:
            driver.communicate("end\n")
    assert driver.returncode == 0
    assert not Path(said["directory"]).exists()


def facts(driver, directory):
    family, tokens, listening = driver.children(recursive=True), set(), set()
    for process in family:
        with suppress(psutil.Error):  # it has ended
            open_ones = process.net_connections("inet")
            listening |= {c.laddr.port for c in open_ones if c.status == psutil.CONN_LISTEN}
            if "gcs_server" in " ".join(process.cmdline()):
                tokens.add(process.environ().get(TOKEN))
    # `Path.rglob` raises if a directory disappears meanwhile.
    paths = [Path(place, name) for place, _, names in os.walk(directory) for name in names]
    return {
        "token": tokens.pop(),
        "ports": sorted(listening),
        "pids": [p.pid for p in family],
        "sockets": [str(path) for path in paths if path.is_socket()],
        "files": [str(path) for path in paths if path.is_file()][:20],
    }


@pytest.fixture(scope="module")
def found(told):
    """Returns the intruder's results."""
    done = subprocess.run(
        [sys.executable, str(HERE / "intruder.py")],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_another_user_without_the_token_cannot_write_to_rays_store(found):
    assert found["uid"] == 65534
    assert found["with the token"] == "got in: 1", "what is tried would work, but for the token"
    for token in ("without one", "with another"):
        assert not found[token].startswith("got in")
        assert "uthenticat" in found[token]


@pytest.mark.slow
def test_another_user_cannot_submit_a_job(found):
    assert found["ports"], "nothing listens"
    statuses = {
        text.removeprefix("got in: ") for text in found["ports"].values() if text.startswith("got in")
    }
    assert statuses <= {"401", "403", "404"}, found["ports"]
    assert not Path("/tmp/planted").exists()


@pytest.mark.slow
def test_another_user_reaches_neither_sockets_nor_files_nor_the_token(told, found):
    assert told["server"] in found["sockets"], "the fork server's"
    assert any("plasma" in path for path in found["sockets"])
    assert len(found["files"]) > 5
    for what in ("sockets", "files", "environments"):
        assert {text.partition(":")[0] for text in found[what].values()} == {"PermissionError"}
    assert found["the directory"].startswith("PermissionError")
    assert found["a file in it"].startswith("PermissionError")


@pytest.mark.slow
def test_a_search_works_with_a_token_that_it_keeps_to_itself(told):
    assert told["task"] == "a task runs"
    assert len(told["token"]) == 64
    assert told["changed"] == [], "what it starts besides has no use for it"


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "0" * 64])
def test_a_missing_token_for_a_cluster_is_reported(told, tmp_path, token):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    environment |= {"HOME": str(tmp_path)} | ({} if token is None else {TOKEN: token})
    done = forked.run(("search", "--address", told["address"]), tmp_path, environment)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    *_, last = done.stderr.splitlines()  # Ray's C++ may print something before it
    assert last.startswith(f"autotune: --address {told['address']}: the cluster asks for its own token")


@pytest.mark.parametrize(("mode", "lines"), [("token", 0), ("disabled", 1)])
def test_a_cluster_without_a_token_is_reported(monkeypatch, mode, lines):
    with monkeypatch.context() as changed:
        changed.setenv("RAY_AUTH_MODE", mode)
        changed.setenv(TOKEN, "0" * 64)
        ray_internals.read_token()
        said = engine_cluster.token_warning("10.0.0.1:6379")
    ray_internals.read_token()
    assert len(said) == lines
    assert all("10.0.0.1:6379 asks for no token" in line for line in said)
