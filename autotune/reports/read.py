"""A session on disk as a report, running or not."""

from pathlib import Path

from autotune.compare import results
from autotune.display import snapshot
from autotune.judging.accounts.costs import Prices
from autotune.judging.decisions import pilot
from autotune.judging.decisions.history import History
from autotune.reports import figures
from autotune.reports.figures import Known
from autotune.reports.model import Report
from autotune.storage.store import Session
from autotune.storage.study_file import Plan
from autotune.workloads import registry


def read(root: Path, samples: int, *, is_over: bool = False, prices: Prices | None = None) -> Report:
    """The report of the session in `root`; raises InputError where there is none, or nothing was run yet.

    Nothing is written, and a running search is not disturbed; one that `is_over` may still be in use.
    """
    session = Session.open(root)
    study = session.study()
    history = pilot.settled(History(study.trials, session.space()))
    space = history.space
    plan = study.plan or Plan(space.budget.trials, space.budget.time)
    compared, workload = results.found(session, space.objective), registry.named(space.workload)
    known = Known(
        shown=root,
        state=snapshot.state_of(session, plan, is_over=is_over),
        history=history,
        workload=workload,
        options=session.options(),
        provenance=session.provenance(),
        plan=plan,
        passed_over=study.passed_over,
        compared=compared,
        own=workload.report_section(session.comparison.root, compared.reports, samples),
        prices=prices,
    )
    return figures.report(known)
