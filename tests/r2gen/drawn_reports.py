"""Every report of the drawn data: one for each set of findings, all different."""

from itertools import product

from r2gen.synthetic import Findings, write_report

REPORTS = [write_report(Findings(*shown)) for shown in product([False, True], repeat=5)]
