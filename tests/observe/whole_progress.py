"""A progress that has everything that one can have."""

from __future__ import annotations

import datetime as dt

from headrace.observe.messages import MessageCounts
from headrace.observe.progress import BatchDone, Delays, PipelineProgress, TableState
from headrace.sources.health import CaptureState, Health

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
ALL = PipelineProgress(
    batches=1,
    rows=1,
    lag_seconds=1.0,
    tables=(TableState("dbo.t", {"c": 1}, 9, "running", complete_until=NOON),),
    health=Health(
        CaptureState.CAPTURING,
        checked=NOON,
        captured_until=NOON,
        retention_seconds=1.0,
        headroom_seconds=1.0,
        log_used_bytes=1,
        retained_bytes=1,
        headroom_bytes=1,
    ),
    complete_until=NOON,
    behind_commits=1,
    behind_messages=1,
    recent=(BatchDone(1, {"c": 1}, (), 1.0, {"read": 1.0}, 1.0),),
    delays=Delays(1.0, 1.0, 1.0, 1),
    messages=MessageCounts({"No JSON.": 1}, 1, 1, 1, 1, {"dbo.t": {"d": 1}}, {"dbo.t": {"d": 1}}),
)
