"""Every report that drawn data can have: one for each set of findings, no two alike."""

from itertools import product

from r2gen.synthetic import Findings, write_report

REPORTS = [write_report(Findings(*shown)) for shown in product([False, True], repeat=5)]
