"""The page that shows runs in a browser: files of this package, and the figures that they ask for."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Protocol

from headrace.observe.flow import Flow
from headrace.observe.history import Reading
from headrace.observe.live import health_text, log_text, now_text
from headrace.observe.progress import BatchDone, PipelineProgress, TableState
from headrace.observe.server import Answer, Route
from headrace.observe.status import PipelineStatus
from headrace.observe.troubles import Trouble
from headrace.sources.health import CaptureState

JSON_TYPE = "application/json; charset=utf-8"
_TEXT_TYPE = "text/plain; charset=utf-8"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = ("index.html", "page.css", "page.js", "charts.js", "uPlot/uPlot.iife.min.js", "uPlot/uPlot.min.css")
_BATCHES = 60
_OF_THE_RUN = ("batches", "rows", "delays", "recent_batches", "troubles")
_STOPPED = "stopped by an error"
_UNKNOWN = "lag unknown"
_STARTING = "starting"
_LAG_SECONDS = 30.0
"""Less is what batches take."""


class Shown(Protocol):
    """A pipeline that the page shows."""

    @property
    def name(self) -> str:
        """The pipeline's."""

    def points(self, since: float) -> list[dict[str, Any]]:
        """Lag and rate after a time, as `points` has them."""

    def figures(self) -> dict[str, Any] | None:
        """The state of now, as `figures` has it; None before the first look.

        Raises:
            Gone: nobody can be asked any more.
        """


class Gone(Exception):
    """A pipeline can't be asked any more."""


def page_routes(shown: Sequence[Shown], hide: Callable[[str], str]) -> Mapping[str, Route]:
    """What a server answers a browser that watches pipelines: the page, and the figures that it asks for.

    Args:
        shown: the pipelines; there is at least one.
        hide: takes secrets out of a text.
    """
    routes: dict[str, Route] = {path: partial(_file, answer) for path, answer in _page_files().items()}
    return {**routes, "/progress.json": partial(_seen, shown, hide)}


def _file(answer: Answer, query: Mapping[str, str]) -> Answer:
    return answer


def _page_files() -> Mapping[str, Answer]:
    folder = files("headrace.observe").joinpath("browser")
    answers = {}
    for name in _FILES:
        kind = f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
        answers["/" if name == "index.html" else f"/{name}"] = Answer(kind, folder.joinpath(name).read_bytes())
    return answers


def _seen(shown: Sequence[Shown], hide: Callable[[str], str], query: Mapping[str, str]) -> Answer:
    try:
        since = float(query.get("since", "0"))
    except ValueError:
        return Answer(_TEXT_TYPE, b"'since' is a time in seconds.\n", HTTPStatus.BAD_REQUEST)
    named = query.get("pipeline", shown[0].name)
    asked = next((one for one in shown if one.name == named), None)
    if asked is None:
        return Answer(_TEXT_TYPE, b"There is no such pipeline.\n", HTTPStatus.NOT_FOUND)
    try:
        state = {
            "clock": time.time(),
            "pipelines": [summary for one in shown if (summary := _summary(one)) is not None],
            "name": asked.name,
            "points": asked.points(since),
            "now": asked.figures(),
        }
    except Gone:
        return Answer(_TEXT_TYPE, b"The run can't be asked any more.\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return Answer(JSON_TYPE, hide(json.dumps(state, ensure_ascii=False)).encode())


def _summary(one: Shown) -> dict[str, Any] | None:
    state = one.figures()
    if state is None:
        return None
    return {"name": one.name, **{name: state[name] for name in ("level", "state", "lag_seconds", "complete_until")}}


def points(moments: Sequence[Reading]) -> list[dict[str, Any]]:
    """Lag and rate over time. JSON values under stable names."""
    return [
        {
            "time": moment.time,
            "lag_seconds": moment.progress.lag_seconds,
            "rows_per_second": moment.progress.rows_per_second,
        }
        for moment in moments
    ]


def figures(moment: Reading, flow: Flow) -> dict[str, Any]:
    """The state of a moment, as the page shows it. JSON values under stable names; times in seconds since 1970."""
    progress = moment.progress
    health = progress.health
    level, word = state(progress)
    return {
        "time": moment.time,
        "level": level,
        "state": word,
        "sentence": health_text(health),
        "remedy": "" if health is None else health.remedy,
        "batches": progress.batches,
        "under_way": "" if progress.under_way is None else now_text(progress),
        "rows": progress.rows,
        "rows_under_way": 0 if progress.under_way is None else progress.under_way.rows,
        "rows_per_second": progress.rows_per_second,
        "lag_seconds": progress.lag_seconds,
        "delays": None
        if progress.delays is None
        else {name: getattr(progress.delays, name) for name in ("p50", "p90", "p99", "batches")},
        "complete_until": _seconds(progress.complete_until),
        "behind_commits": progress.behind_commits,
        "behind_messages": progress.behind_messages,
        "retention_seconds": None if health is None else health.retention_seconds,
        "headroom_seconds": None if health is None else health.headroom_seconds,
        "log": log_text(health),
        "messages": progress.messages.to_json(),
        "flow": flow.to_json(),
        "tables": [_table(table) for table in progress.tables],
        "recent_batches": [_batch(batch) for batch in progress.recent[-_BATCHES:]],
        "troubles": [_trouble(trouble) for trouble in reversed(progress.troubles)],
    }


def figures_of_status(status: PipelineStatus, flow: Flow, now: float) -> dict[str, Any]:
    """What the page shows of a pipeline that is looked at from outside: what a run keeps, where one works that does so.

    Else it is what the checkpoint and the source say, with what the last run did.

    Args:
        status: where the pipeline stands.
        flow: what flows from where to where.
        now: seconds since 1970.
    """
    if (progress := status.told_by_run(now)) is not None:
        return dict(progress.figures)
    kept = status.run
    values = figures(Reading(now, status.progress()), flow)
    if values["state"] == _STARTING and status.batch is not None:
        values |= {"level": "warning", "state": _UNKNOWN}
    if kept is not None:
        values |= {name: kept.figures[name] for name in _OF_THE_RUN if name in kept.figures}
        rows = {table["table"]: table["rows"] for table in kept.figures.get("tables", ())}
        values["tables"] = [{**table, "rows": rows.get(table["table"], {})} for table in values["tables"]]
    if any(trouble["fatal"] for trouble in values["troubles"]) and not status.running:
        return values | {"level": "bad", "state": _STOPPED}
    if status.running is False and (values["level"] not in ("bad", "warning") or values["state"] == _UNKNOWN):
        return values | {"level": "off", "state": "not running" if status.batch is not None else "not started"}
    return values


def state(progress: PipelineProgress) -> tuple[str, str]:
    """How a run is: `good`, `busy`, `warning` or `bad`, and why in a few words. Nothing that runs is `off`."""
    health = progress.health
    if any(trouble.fatal for trouble in progress.troubles):
        return "bad", _STOPPED
    if health is not None and health.state is CaptureState.NOT_CAPTURING:
        return "bad", "source does not capture"
    if health is not None and health.lost:
        return "bad", "needed changes are deleted"
    if progress.messages.left_out:
        return "bad", "messages left out"
    if health is not None and (health.at_risk or health.headroom_is_small):
        return "warning", "little retention left"
    if any(table.parked for table in progress.tables):
        return "bad", "tables are parked"
    if any(table.lost or not table.captured for table in progress.tables):
        return "warning", "tables lack changes"
    if health is not None and health.state is CaptureState.LAGGING:
        return "warning", "source captures late"
    if progress.lag_seconds is None:
        starts = not progress.batches and not progress.position and not health_text(health)
        return ("busy", _STARTING) if starts else ("warning", _UNKNOWN)
    if progress.snapshotting:
        return "busy", "reading snapshots"
    if progress.lag_seconds > _LAG_SECONDS:
        return "busy", "catching up"
    return "good", "streaming" if progress.lag_seconds else "up to date"


def _table(table: TableState) -> dict[str, Any]:
    return {
        "table": table.table,
        "state": table.state,
        "rows": dict(table.rows),
        "snapshot": table.snapshot,
        "read": table.read,
        "estimate": table.estimate,
        "read_per_second": table.read_per_second,
        "seconds_left": table.snapshot_seconds_left,
        "complete_until": _seconds(table.complete_until),
        "parked": table.parked,
    }


def _batch(batch: BatchDone) -> dict[str, Any]:
    return {
        "number": batch.number,
        "time": _seconds(batch.at),
        "rows": sum(batch.rows.values()),
        "seconds": batch.seconds,
        "delay_seconds": batch.delay,
        "stages": dict(batch.stages),
    }


def _trouble(trouble: Trouble) -> dict[str, Any]:
    return {
        "sentence": trouble.sentence,
        "remedy": trouble.remedy,
        "time": _seconds(trouble.at),
        "times": trouble.times,
        "fatal": trouble.fatal,
    }


def _seconds(time: dt.datetime | None) -> float | None:
    return None if time is None else time.timestamp()
