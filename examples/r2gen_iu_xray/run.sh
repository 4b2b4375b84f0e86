#!/bin/sh
# The walk of the README, shorter: a small model and a small search, for two CPU cores and less than four minutes.
# DATA is a data set in R2Gen's layout; without one, X-rays are drawn.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python}
session=${SESSIONS:-runs}/r2gen_iu_xray

"$python" -m autotune search --space space.yaml --baseline baseline.yaml --model small ${DATA:+--data "$DATA"} \
    --session "$session" --trials 4 --samples 1600 --repeats 0 --wandb off
"$python" -m autotune compare "$session" --precisions fp32
"$python" -m autotune export "$session" -o "$session/best.yaml"
"$python" -m r2gen train --config "$session/best.yaml" --workdir "$session/trained" --set epochs=2
