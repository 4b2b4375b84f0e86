"""A session for readers: what a search has found so far, whether it is running or not."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from autotune.core.errors import AutotuneError
from autotune.display import advice, rows, snapshot
from autotune.judging.accounts import costs
from autotune.judging.decisions import confirm
from autotune.judging.measurement.estimates import Figure
from autotune.space import configurations
from autotune.storage import store

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Evidence:
    """The speedup and the quality of the best settings, and the evidence for them."""

    trial: int
    is_confirmed: bool  # the factor and the quality held in runs with fresh seeds
    factor: Figure | None  # the baseline's time over the trial's, with its interval
    quality: float | None  # at the end of the training
    baseline_quality: float | None
    rounds: int  # of the race against the baseline
    seeds: int
    why_not: str  # the reason if nothing is confirmed


class Session:
    """A search in its directory. Every property reads what the directory has now."""

    def __init__(self, path: Path) -> None:
        """Opens the session in `path`; raises InputError if there is none."""
        self.path = path
        self._files = store.StoredSession.open(path)

    def __repr__(self) -> str:
        return f"autotune.open({str(self.path)!r})"

    @property
    def trials(self) -> "pd.DataFrame":
        """A row for each trial, with the figures that `status` and the report show."""
        import pandas as pd  # noqa: PLC0415 - it takes a while, and only a table needs it

        shown = snapshot.take(self._files, self.path)
        best, table = shown.best[0].number if shown.best else None, []
        for row in rows.rows(shown.history, best):
            factor = row.factor or Figure(float("nan"))
            figures = {
                "trial": row.number,
                "kind": row.kind,
                "status": row.status,
                **row.config,
                "throughput": row.throughput.value if row.throughput else None,
                "quality": row.quality,
                "peak_memory_bytes": row.peak_memory_bytes,
                "factor": factor.value,
                "factor_low": factor.low,
                "factor_high": factor.high,
                "seconds": row.seconds,
                "reason": row.reason,
            }
            table.append(figures)
        return pd.DataFrame(table).set_index("trial")

    @property
    def winner(self) -> dict[str, Any] | None:
        """The settings to train with, in the training's own names; None until a trial has won."""
        history = self._files.history()
        best = confirm.recommended(history)
        if best is None or not best[0].number or not advice.has_winner(history):
            return None
        return dict(configurations.for_workload(history.space, history.space.settings(best[0].config)))

    @property
    def evidence(self) -> Evidence | None:
        """The evidence for the best settings so far; None before the baseline has completed."""
        history = self._files.history()
        best, baseline = confirm.recommended(history), history.baseline
        if best is None or baseline is None:
            return None
        trial, claim = best
        return Evidence(
            trial=trial.number,
            is_confirmed=advice.verdict(best) is advice.WinnerState.CONFIRMED,
            factor=costs.gain(trial, history),
            quality=rows.row(trial, history).quality,
            baseline_quality=rows.row(baseline, history).quality,
            rounds=claim.rounds if claim else 0,
            seeds=claim.seeds if claim else 0,
            why_not="" if advice.has_winner(history) else advice.no_winner_reason(history),
        )

    def export(
        self,
        output: Path | str | None = None,
        *,
        trial: int | None = None,
        format: str | None = None,  # noqa: A002 - as the option is called
        patch: Path | str | None = None,
    ) -> Path:
        """Writes the winner, or a `trial`, as a file to train with, as the command `export` does."""
        from autotune.sessions import exporting  # noqa: PLC0415 - `status` needs none of it

        file, own = (None if one is None else Path(one) for one in (output, patch))
        return exporting.export(self.path, file, trial, format, own).file

    def report(self, output: Path | str | None = None, *, format: str = "html") -> Path:  # noqa: A002 - as above
        """Writes the report as `html`, `json` or `md`, as the command `report` does."""
        from autotune.sessions import reporting  # noqa: PLC0415 - as above

        text, usual = reporting.render(self.path, format)
        file = usual if output is None else Path(output)
        reporting.write(file, text, is_ours=output is None)
        return file

    def _repr_html_(self) -> str:
        """Shows the answer and the trials in a notebook."""
        try:
            trials, evidence = self.trials, self.evidence
        except AutotuneError as error:
            return f"<p>{escape(str(error))}</p>"
        if evidence is None or evidence.why_not or evidence.factor is None:
            answer = evidence.why_not if evidence else "The baseline has not completed."
        else:
            times = f"{evidence.factor.value:.2f}x as fast as the baseline"
            sure = "confirmed" if evidence.is_confirmed else "not confirmed"
            answer = f"Trial {evidence.trial} trains {times}, {sure}."
        table = trials.to_html(escape=True, max_rows=20, na_rep="", border=0)
        return f"<p><b>{escape(answer)}</b><br>{escape(str(self.path))}</p>{table}"
