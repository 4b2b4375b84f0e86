"""Runs a search for `api` in a process of its own: reads a line of JSON, prints lines of JSON."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory, whose modules must not be taken for those imported below

import json
import os

from autotune.core import secrecy
from autotune.sessions import faults, start, supervision
from autotune.sessions.requests import CALL


def main() -> int:
    call = CALL.validate_json(sys.stdin.readline())
    supervision.die_with(call.parent)
    try:
        return start.search(call.search) if call.search else start.resume(call.resume) if call.resume else 0
    except (Exception, KeyboardInterrupt) as error:
        if (known := faults.deliberate(error)) is None:
            raise
        text = secrecy.hide_secrets(str(known), os.environ)
        print(json.dumps({"event": "error", "kind": type(known).__name__, "text": text}), flush=True)
        return faults.exit_code(known)


if __name__ == "__main__":
    sys.exit(main())
