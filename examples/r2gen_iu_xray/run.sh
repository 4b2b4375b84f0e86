#!/bin/sh
# The README's walk with a small model and few trials, for two CPU cores: run.sh SESSION.
# DATA is a data set in R2Gen's layout; without one, X-rays are drawn.
set -eu
session=$(realpath -m "$1")
python=$(command -v "${PYTHON:-python}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
cd "$(dirname "$0")"
"$python" -m autotune search --space space.yaml --baseline baseline.yaml --model small ${DATA:+--data "$DATA"} \
    --session "$session" --trials 4 --samples 1600 --repeats 0 --wandb off
"$python" -m autotune compare "$session" --precisions fp32,bf16
"$python" -m autotune export "$session" -o "$session/best.yaml"
"$python" -m r2gen train --config "$session/best.yaml" --workdir "$session/trained" --set epochs=2
