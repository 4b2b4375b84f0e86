"""The part of W&B's server that its client needs to log or sync runs; records what it receives."""

import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_STREAM = re.compile(r"/files/[^/]+/[^/]+/(?P<run>[^/]+)/file_stream")


class WandbServer(ThreadingHTTPServer):
    """Answers on loopback after `delay_s`; `history` is by run ID, `artifacts` are names."""

    daemon_threads = True

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.delay_s = delay_s
        self.asked: list[str] = []
        self.history: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self.exit_codes: dict[str, int] = {}
        self.artifacts: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stream(self, run: str, sent: dict[str, Any]) -> None:
        part = sent.get("files", {}).get("wandb-history.jsonl", {})
        for place, line in enumerate(part.get("content", ()), part.get("offset", 0)):
            self.history[run][place] = json.loads(line)
        if sent.get("complete"):
            self.exit_codes[run] = sent.get("exitcode", 0)


class _Handler(BaseHTTPRequestHandler):
    server: WandbServer

    def do_GET(self) -> None:
        self._answer({})

    def do_PUT(self) -> None:
        self._body()
        self._answer({})

    def do_POST(self) -> None:
        body = json.loads(self._body() or "{}")
        time.sleep(self.server.delay_s)
        if stream := _STREAM.search(self.path):
            self.server.stream(stream["run"], body)
            self._answer({})
        else:
            query, variables = body.get("query", ""), body.get("variables") or {}
            self.server.asked.append(query)
            if "createArtifact(" in query:
                self.server.artifacts.add(variables["input"]["artifactCollectionName"])
            self._answer({"data": _graph(query, variables)})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def _graph(query: str, variables: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a GraphQL query."""
    project = {"id": "p", "name": "autotune", "entity": {"id": "e", "name": "somebody"}}
    if "upsertBucket" in query:
        name = variables.get("name") or variables.get("id")
        bucket = {"id": f"id-{name}", "name": name, "displayName": name, "project": project}
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}
    if "createRunFiles" in query:
        return {"createRunFiles": {"runID": variables.get("run"), "uploadHeaders": [], "files": []}}
    if "createArtifact(" in query:  # as if it had the same one already, so that nothing is uploaded
        return {"createArtifact": {"artifact": {"id": "a", "state": "COMMITTED", "artifactSequence": None}}}
    if "viewer" in query:
        viewer = {
            "id": "v",
            "entity": "somebody",
            "username": "somebody",
            "flags": "{}",
            "teams": {"edges": []},
        }
        return {"viewer": viewer}
    return {"model": None, "serverInfo": None, "project": {"artifact": None}}


@contextmanager
def serving(delay_s: float = 0.0) -> Iterator[WandbServer]:
    with WandbServer(delay_s) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
