#!/bin/sh
# Prints the options by which `make test` leaves out the tests of the trainer, the lab and two frameworks. Each stays in
# if something that it tests differs from the commit before the last one or from the upstream branch, or if git cannot tell.
cd "$(dirname "$0")/.." || exit
leave_out() {
    for base in HEAD~1 $(git rev-parse --quiet --verify '@{upstream}' 2>/dev/null); do
        git diff --quiet "$base" -- "$@" 2>/dev/null || return 0
    done
    [ -n "$(git ls-files --others --exclude-standard -- "$@")" ] || printf '%s ' "--ignore=$1"
}
leave_out tests/r2gen r2gen tests/tiny_r2gen.py tests/fixtures constraints.txt
leave_out tests/lab lab autotune/searcher autotune/judging constraints.txt
for framework in lightning transformers; do
    leave_out "tests/autotune/inside/test_$framework.py" tests/autotune/inside autotune/inside autotune/workloads constraints.txt
done
