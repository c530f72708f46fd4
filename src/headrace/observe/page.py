"""The page that shows a run in a browser: plain HTML from this package, and the numbers that it asks for."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from headrace.observe.history import Moment
from headrace.observe.live import health_text, log_text
from headrace.observe.progress import PipelineProgress
from headrace.sources.health import CaptureState

HTML_TYPE = "text/html; charset=utf-8"
JSON_TYPE = "application/json; charset=utf-8"


def page() -> bytes:
    """The page; it loads nothing but itself and `/progress.json`."""
    return files("headrace.observe").joinpath("page.html").read_bytes()


def seen(name: str, moments: list[Moment], newest: Moment | None) -> dict[str, Any]:
    """What the page asks for: lag and rate over time, and the state of now. JSON values under stable names.

    Args:
        name: the pipeline's.
        moments: those since the page's last request.
        newest: the last look; null before the first.
    """
    return {
        "name": name,
        "points": [
            {
                "time": moment.time,
                "lag_seconds": moment.progress.lag_seconds,
                "rows_per_second": moment.progress.rows_per_second,
            }
            for moment in moments
        ],
        "now": None if newest is None else _now(newest.progress),
    }


def _now(progress: PipelineProgress) -> dict[str, Any]:
    health = progress.health
    known = health is not None and health.state is not CaptureState.UNKNOWN
    return {
        "batches": progress.batches,
        "rows": progress.rows,
        "rows_per_second": progress.rows_per_second,
        "lag_seconds": progress.lag_seconds,
        "behind_commits": progress.behind_commits,
        "behind_messages": progress.behind_messages,
        "rejected_rows": progress.messages.unreadable,
        "capturing": health.state is not CaptureState.NOT_CAPTURING if health is not None and known else None,
        "health": health_text(health),
        "log": log_text(health),
        "tables": [
            {
                "table": state.table,
                "rows": dict(state.rows),
                "snapshot": state.snapshot,
                "read": state.read,
                "estimate": state.estimate,
            }
            for state in progress.tables
        ],
    }
