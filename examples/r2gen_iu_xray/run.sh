#!/bin/sh
# The README's walk with a small model and a few trials, for two CPU cores: run.sh SESSION.
# DATA is a data set in R2Gen's layout; without one, X-rays are drawn.
set -eu
session=$(realpath -m "$1")
data=${DATA:+$(realpath "$DATA")}
python=$(realpath -s "$(command -v "${PYTHON:-python}")")
cd "$(dirname "$0")"

"$python" -m autotune search --space space.yaml --baseline baseline.yaml --model small ${data:+--data "$data"} \
    --session "$session" --trials 4 --samples 1200 --repeats 0 --wandb off
"$python" -m autotune compare "$session" --precisions bf16 --samples-per-model 600
"$python" -m autotune report "$session" --samples 2
"$python" -m autotune export "$session" -o "$session/best.yaml"
"$python" -m r2gen train --config "$session/best.yaml" --workdir "$session/trained" --set epochs=2
