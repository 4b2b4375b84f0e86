"""Reads the report of a session from its directory, running or not."""

from pathlib import Path

from autotune.compare import results
from autotune.display import snapshot
from autotune.judging.accounts.costs import Prices
from autotune.reports import figures
from autotune.reports.figures import SessionFacts
from autotune.reports.model import SessionReport
from autotune.storage.store import StoredSession
from autotune.workloads import registry


def read(root: Path, samples: int, *, is_over: bool = False, prices: Prices | None = None) -> SessionReport:
    """Returns the report of the session in `root`; raises InputError if there is none, or no trial in it."""
    session = StoredSession.open(root)
    search = snapshot.take(session, root, is_over=is_over)
    compared, workload = results.load(session, search.space.objective), registry.named(search.space.workload)
    return figures.report(
        SessionFacts(
            path=root,
            state=search.state,
            history=search.history,
            workload=workload,
            options=session.options(),
            provenance=session.provenance(),
            plan=search.plan,
            passed_over=search.passed_over,
            compared=compared,
            own=workload.report_section(session.comparison.root, compared.reports, samples),
            prices=prices,
        )
    )
