"""Rows of one statement that take over each other's keys, in an order in which no key is taken before it is free.

`UPDATE t SET k = k + 1` is one update per row in the log, in the order in which rows were touched: 1 becomes 2 before 2
becomes 3. Whoever follows changes by key would take the row that is now 2 away again. So such updates are put into an
order in which a key is left before it is taken; where keys go round in a circle, they become deletes and inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from headrace.changes import Operation
from headrace.errors import CaptureError
from headrace.sources.offset import Key
from headrace.sources.oracle.assembly import Event

_HELD = 20_000
"""How many updates are looked at together."""
_NO_ROW = "A" * 18
_REMEMBERED = 5_000_000
_STAYS: Key = ()
KeyChange = Callable[[Event], tuple[Key, Key] | None]
"""The keys before and after an update; null when it does not change the key."""


def in_free_order(events: Iterator[Event], keys: KeyChange) -> Iterator[tuple[Event, Event, int]]:
    """Events in an order in which keys are free when they are taken, each with the event at whose position it stands.

    A number tells events at one place apart; it is zero for an event at its own position.

    Args:
        events: of one transaction, in mined order.
        keys: says which updates change keys.

    Raises:
        CaptureError: more rows take over each other's keys than can be looked at together, or rows go round in a circle
            whose large values are not in the log.
    """
    run: list[tuple[Event, Key, Key]] = []
    rows: set[str] = set()
    taken: set[int] = set()
    for event in events:
        change = keys(event) if event.op is Operation.UPDATE else None
        row = event.row_id
        # A statement touches a row once, and between rows whose keys it changes others whose keys stay what they are.
        goes_on = event.op is Operation.UPDATE and row not in (None, _NO_ROW) and (change is not None or bool(run))
        if run and (not goes_on or run[0][0].path != event.path or row in rows):
            yield from _ordered(run)
            run, rows, taken = [], set(), set()
            goes_on = change is not None and goes_on
        if not goes_on:
            yield event, event, 0
            continue
        if change is not None and hash(change[0]) in taken:
            raise CaptureError(
                f"More than {_HELD:,} rows of table {event.path} take over each other's keys (SCN {event.scn}).",
                remedy="Take a new snapshot of the table with a new checkpoint.",
            )
        run.append((event, *(change or (_STAYS, _STAYS))))
        rows.add(str(row))
        if len(run) >= _HELD:
            half, run = run[: _HELD // 2], run[_HELD // 2 :]
            if len(taken) < _REMEMBERED:
                taken |= {hash(new) for _, _, new in half if new}
            yield from _ordered(half)
    yield from _ordered(run)


def _ordered(run: list[tuple[Event, Key, Key]]) -> Iterator[tuple[Event, Event, int]]:
    if not run:
        return
    events = [event for event, _, _ in run]
    leaving: dict[Key, list[int]] = {}
    for number, (_, old, _) in enumerate(run):
        if old:
            leaving.setdefault(old, []).append(number)
    # An update that takes a key goes after the one of another row that leaves it: the next one, else the last before.
    waits: list[int | None] = []
    turned = False
    for number, (_, _, new) in enumerate(run):
        leavers = [n for n in leaving.get(new, ()) if n != number]
        wait = next((n for n in leavers if n > number), leavers[-1] if leavers else None)
        waits.append(wait)
        turned |= wait is not None and wait > number
    if not turned:
        yield from ((event, event, 0) for event in events)
        return
    order, circles = _free_order(waits)
    shifted: list[Event] = []
    for number in order:
        shifted.append(events[number])
    for circle in circles:
        for number in circle:
            shifted.append(_leaving(events[number]))
        for number in circle:
            shifted.append(_taking(events[number]))
    yield from ((event, events[0], number) for number, event in enumerate(shifted, 1))


def _free_order(waits: list[int | None]) -> tuple[list[int], list[list[int]]]:
    """Updates in an order in which each follows the one that it waits for, and those that wait in circles."""
    state = [0] * len(waits)
    order: list[int] = []
    circles: list[list[int]] = []
    for first in range(len(waits)):
        path: list[int] = []
        at: int | None = first
        while at is not None and state[at] == 0:
            state[at] = 1
            path.append(at)
            at = waits[at]
        if at is not None and state[at] == 1:
            start = path.index(at)
            circles.append(path[start:])
            path = path[:start]
            for number in circles[-1]:
                state[number] = 2
        for number in reversed(path):
            state[number] = 2
            order.append(number)
    return order, circles


def _leaving(event: Event) -> Event:
    assert event.row is not None
    return replace(event, op=Operation.DELETE, row=event.row._replace(op="delete", after=None), values={}, lost=set())


def _taking(event: Event) -> Event:
    assert event.row is not None
    return replace(event, op=Operation.CREATE, row=event.row._replace(op="insert", before=None))
