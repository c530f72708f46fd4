"""Notifications of how snapshots go, in Debezium's words: lines of the log, and rows that formats send to a topic.

They follow from the two offsets of a batch, so a batch that is done again says the same. Runs in the driver.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from headrace.changes import Operation, Position
from headrace.errors import OptionError
from headrace.options import OTHER_NAMES, items
from headrace.settings import Settings, option
from headrace.sources.base import Slice
from headrace.sources.offset import Offset, time_text
from headrace.sources.rows import Marker, marker_batch
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import Request

LOG, SINK = "log", "sink"
KIND = "notifications"
"""The kind of the slice that has the rows of a batch's notifications."""
_INITIAL, _INCREMENTAL = "Initial Snapshot", "Incremental Snapshot"
_ORDER = "zz"
"""They stand after all else of a batch's last commit."""
_IDS = uuid.UUID("f1b21b1e-7f7c-5c1c-9d53-6a3f0e1b2a77")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LOG = logging.getLogger("headrace.notifications")


def channels(given: object) -> tuple[str, ...]:
    """Channels by their names, with commas between; used as an option's kind.

    Raises:
        ValueError: one of them does not exist here.
    """
    names = tuple(name.lower() for name in items(given))
    if "jmx" in names:
        raise ValueError("'jmx' shows beans of a Java program, which no source of Headrace is; use log or sink")
    unknown = next((name for name in names if name not in (LOG, SINK)), None)
    if unknown is not None:
        raise ValueError(f"'{unknown}' is none of log and sink")
    return names


def topic_name(given: object) -> str:
    """The name of a topic; used as an option's kind.

    Raises:
        ValueError: it is none.
    """
    text = str(given).strip()
    if _TOPIC.fullmatch(text) is None:
        raise ValueError("a topic has letters, digits, '.', '_' and '-'")
    return text


class NotificationSettings(Settings):
    """Who hears how snapshots go."""

    notification_enabled_channels: tuple[str, ...] = option(
        "Where notifications of snapshots go, in Debezium's form: `log` (logger `headrace.notifications`), `sink` (the "
        "topic 'notification_sink_topic_name', by a format of Debezium's).",
        default=(),
        kind=channels,
        aliases=("notification.enabled.channels",),
        names=OTHER_NAMES,
    )
    notification_sink_topic_name: str = option(
        "The topic of notifications, as it stands; needed by the channel `sink`.",
        default="",
        kind=topic_name,
        aliases=("notification.sink.topic.name",),
    )


@dataclass(frozen=True)
class Notification:
    """One of them.

    Args:
        id: of an incremental snapshot the id of the signal that asked for it, else an id of its own.
        type: what happened, such as `STARTED`.
        aggregate_type: to which kind of snapshot.
        additional_data: more about it, without the connector's name.
        timestamp: when the batch was planned, in milliseconds.
    """

    id: str
    type: str
    aggregate_type: str
    additional_data: Mapping[str, str]
    timestamp: int | None

    def to_json(self, connector: str) -> dict[str, Any]:
        """Debezium's form.

        Args:
            connector: the connector's name.
        """
        return {
            "id": self.id,
            "type": self.type,
            "aggregate_type": self.aggregate_type,
            "additional_data": {"connector_name": connector, **self.additional_data},
            "timestamp": self.timestamp,
        }


class Notifications:
    """Says what the options want to be said of each batch.

    Args:
        settings: the source's options.

    Raises:
        OptionError: a topic is missing.
    """

    def __init__(self, settings: Settings) -> None:
        self._channels: tuple[str, ...] = settings.get("notification_enabled_channels", ())
        self._topic: str = settings.get("notification_sink_topic_name", "")
        if SINK in self._channels and not self._topic:
            raise OptionError(
                "The notification channel 'sink' needs a topic.", remedy="Set 'notification_sink_topic_name'."
            )

    def planned(self, database: str, start: Offset, end: Offset, *, prefix: str = "") -> list[Slice]:
        """Log the notifications of the batch (start, end], and give the slice with their rows, where there are any.

        Args:
            database: the database's name.
            start: where the batch before ended.
            end: where this one does.
            prefix: stands before the names of tables.
        """
        slices = list(notifications(start, end, prefix)) if self._channels else []
        if LOG in self._channels:
            for one in slices:
                # A warning, because Spark's Python processes show nothing below that.
                _LOG.warning("%s", json.dumps(one.to_json(database), ensure_ascii=False))
        if SINK not in self._channels or not slices:
            return []
        rows = [_row(one, self._topic, end.commit, number) for number, one in enumerate(slices)]
        details = {"rows": rows, "capture_time": end.capture_time}
        return [Slice(KIND, details, weight=0.0, tables=())]


def rows_of(slice: Slice) -> pa.RecordBatch:
    return marker_batch(slice.details["rows"], slice.details["capture_time"])


def notifications(start: Offset, end: Offset, prefix: str = "") -> Iterator[Notification]:
    """What the batch (start, end] does with snapshots, in the order in which it happens.

    Args:
        start: where the batch before ended.
        end: where this one does.
        prefix: stands before the names of tables.
    """
    yield from _of_tables(_Telling(end, _INITIAL, prefix), start, end)
    yield from _of_requests(_Telling(end, _INCREMENTAL, prefix), start, end)


@dataclass(frozen=True)
class _Telling:
    """Makes the notifications of one kind of snapshot in one batch."""

    end: Offset
    aggregate_type: str
    prefix: str

    def one(self, type: str, tables: Sequence[str] = (), id: str = "", **more: str) -> Notification:
        names = ",".join(f"{self.prefix}{table}" for table in tables)
        data = {**({"data_collections": names} if tables else {}), **more}
        at = self.end.capture_time
        identity = (self.end.source, self.end.commit, time_text(at) or "", self.aggregate_type, type, *data.values())
        return Notification(
            id or str(uuid.uuid5(_IDS, "\n".join(identity))),
            type,
            self.aggregate_type,
            data,
            None if at is None else round(at.timestamp() * 1000),
        )

    def name(self, table: str) -> str:
        return f"{self.prefix}{table}"


def _of_tables(telling: _Telling, start: Offset, end: Offset) -> Iterator[Notification]:
    """Snapshots that read whole tables: the first one, later tables', and those that are asked for as `blocking`."""
    begins = start.is_nothing or (end.initial and not start.initial)
    tables = [path for path in end.known if path in end.tables and _is_read(start, end, path)]
    if start.is_nothing and not tables:
        yield telling.one("SKIPPED")
        return
    if begins and end.tables:
        yield telling.one("STARTED")
    for path in tables:
        progress = end.tables[path]
        if end.captures_newly(start, path) or (progress.bounds and progress.chunk == 0):
            yield telling.one("IN_PROGRESS", tables, current_collection_in_progress=telling.name(path))
        before = start.tables.get(path)
        if progress.done and (before is None or not before.done or end.captures_newly(start, path)):
            status = "EMPTY" if progress.empty else "SUCCEEDED"
            yield telling.one("TABLE_SCAN_COMPLETED", tables, scanned_collection=telling.name(path), status=status)
    left = [path for path, progress in start.tables.items() if not progress.done and path not in end.tables]
    if left:
        yield telling.one("ABORTED", left)
    elif (begins or start.initial) and not end.initial:
        yield telling.one("COMPLETED")


def _is_read(start: Offset, end: Offset, path: str) -> bool:
    """Whether a table's rows are read, in this batch or before; one that is only streamed was never begun."""
    progress, before = end.tables[path], start.tables.get(path)
    return bool(progress.bounds or progress.chunk or progress.empty or not progress.done or before is not None)


def _of_requests(telling: _Telling, start: Offset, end: Offset) -> Iterator[Notification]:
    """Snapshots beside the stream; the tables that one signal asked for are one snapshot."""
    if start.ad_hoc == end.ad_hoc:
        return
    before, after = AdHoc.from_json(start.ad_hoc), AdHoc.from_json(end.ad_hoc)
    known = {request.number: request for request in before.requests if not request.done}
    now = {request.number: request for request in after.requests}
    every = sorted((known | now).values(), key=lambda request: request.number)
    for signal, group in groupby(every, lambda request: request.signal):
        yield from _of_signal(telling, signal, list(group), known, now, paused=(before.paused, after.paused))


def _of_signal(
    telling: _Telling,
    signal: str,
    requests: Sequence[Request],
    known: Mapping[int, Request],
    now: Mapping[int, Request],
    *,
    paused: tuple[bool, bool],
) -> Iterator[Notification]:
    tables = [request.table for request in requests]
    if not any(request.number in known for request in requests):
        yield telling.one("STARTED", tables, signal)
    was, is_paused = paused
    if is_paused and not was:
        yield telling.one("PAUSED", tables, signal)
    elif was and not is_paused and any(request.number in now for request in requests):
        yield telling.one("RESUMED", tables, signal)
    for request in requests:
        if request.number not in now:
            yield telling.one("ABORTED", [request.table], signal)
            continue
        name = telling.name(request.table)
        if request.bounds:
            yield telling.one("IN_PROGRESS", tables, signal, current_collection_in_progress=name)
        if request.done:
            status = "SUCCEEDED" if request.bounds or request.chunk else "EMPTY"
            yield telling.one("TABLE_SCAN_COMPLETED", tables, signal, scanned_collection=name, status=status)
    left = [request for request in requests if request.number in now]
    if left and all(request.done for request in left):
        yield telling.one("COMPLETED", (), signal)


def _row(notification: Notification, topic: str, commit: str, number: int) -> Marker:
    """The row of a notification: a message of the source, for the topic that the options name."""
    facts = {
        "topic": topic,
        "id": notification.id,
        "type": notification.type,
        "aggregate_type": notification.aggregate_type,
        "additional_data": json.dumps(dict(notification.additional_data), separators=(",", ":"), ensure_ascii=False),
        **({} if notification.timestamp is None else {"timestamp": str(notification.timestamp)}),
    }
    return Marker(Operation.MESSAGE, Position(commit, _ORDER, f"{number:04x}"), facts)
