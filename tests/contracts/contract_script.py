"""The same programs as a script: `contract_script.py FORM PROGRAM WORKDIR name=value ...`.

Of form `reports` it calls `autotune.report`; of form `prints` it knows nothing of the tuner.
"""

import json
import signal
import sys
from pathlib import Path

import contract_programs


def words(text):
    """A setting as it was before it was written down."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def prints(records):
    for record in records:
        name, key = ("score", "score") if "score" in record else ("seen", "samples")
        print(name, record[key], flush=True)


def main():
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    form, program, workdir, *given = sys.argv[1:]
    settings = {name: words(value) for name, value in (one.split("=", 1) for one in given)}
    records = getattr(contract_programs, program)(settings, Path(workdir))
    if form == "prints":
        prints(records)
    else:
        from contract_pushed import tell

        tell(records)


if __name__ == "__main__":
    main()
