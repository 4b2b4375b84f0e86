#!/bin/sh
# Searches every example that is a directory with a space.yaml, or those that are named: run.sh [EXAMPLE]...
# An example with a run.sh of its own is run by that. Sessions go to runs/examples/; one that is there is kept, and
# the example left out. SEARCH has more options of `autotune search`. An example fails where its search breaks off,
# not where it finds nothing better.
set -u
cd "$(dirname "$0")/.." || exit 2
python=${PYTHON:-.venv/bin/python}
[ $# -gt 0 ] || set -- $(cd examples && ls -d */space.yaml | xargs -n 1 dirname)
failed=
for name in "$@"; do
    session=runs/examples/$name
    if [ -e "$session" ]; then
        echo "== $name: $session is there already"
        continue
    fi
    echo "== $name"
    begun=$(date +%s)
    if [ -x "examples/$name/run.sh" ]; then
        "examples/$name/run.sh" "$session"
    else
        # shellcheck disable=SC2086 # options are words
        "$python" -m autotune search --space "examples/$name/space.yaml" --session "$session" --wandb off ${SEARCH:-}
    fi
    code=$?
    echo "== $name: exit code $code after $(($(date +%s) - begun)) s"
    [ $code -le 1 ] || failed="$failed $name"
done
[ -z "$failed" ] || { echo "These examples failed:$failed" >&2; exit 1; }
