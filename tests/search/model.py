"""What sinks must hold after a drawn pipeline, by a fold of its own that knows nothing of `headrace.apply`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.search.database import ADDED, Database, Event, Image
from tests.search.drawn import Pipeline

from headrace.changes.row import SNAPSHOT_ENDS

Row = Mapping[str, Any]
Events = tuple[Counter[Image], Counter[Image]]
"""What went and what came with a commit, without what did both."""


class Difference(AssertionError):
    """Sinks hold something else than the model, and nobody said so."""


class Attempts(Protocol):
    """What a sink took."""

    kind: str

    @property
    def attempts(self) -> Sequence[Sequence[Sequence[Row]]]:
        """The attempts of each batch, in order."""


def compare(pipeline: Pipeline, database: Database, sinks: Sequence[Attempts], begun: int | None) -> None:
    """Hold every sink against the model.

    Args:
        pipeline: what was drawn.
        database: its database.
        sinks: what they took.
        begun: how many commits there were when the first batch was planned.

    Raises:
        Difference: one of them holds something else.
    """
    options = dict(pipeline.options)
    skipped = str(options.get("skipped_operations", ""))
    begun = len(database.commits) if begun is None else begun
    for place, sink in enumerate(sinks, 1):
        for attempts in sink.attempts:
            _require_repeated(attempts)
        last = [attempts[-1] for attempts in sink.attempts]
        for number, table in enumerate(pipeline.tables):
            where = f"sink {place} ({sink.kind}), table {number} ({table.name!r})"
            rows = [_of(table.name, batch) for batch in last]
            if not table.included:
                if any(rows):
                    raise Difference(f"{where}: it is not captured, and has rows")
                continue
            filtered = (place, number) in pipeline.filtered
            if number not in database.broken and not database.cleaned:
                _require_history(database, number, rows, skipped, begun, where, filtered=filtered)
            if not _mirrors(pipeline) or number in database.off:
                continue
            keyless = all(row["key_text"] is None for batch in rows for row in batch if row["op"] in "rcud")
            held = _bag(rows, where) if keyless else _mirror(rows)
            wanted = _wanted(database, number, filtered=filtered)
            if _lacks_deletes(rows):
                held &= wanted
            _require_equal(held, wanted, where)
            if sink.kind == "appending" and not keyless:
                all_rows = [_of(table.name, attempt) for attempts in sink.attempts for attempt in attempts]
                _require_equal(_mirror(all_rows), held, f"{where} with repetitions")


def require_rows(pipeline: Pipeline, database: Database, place: int, number: int, held: Counter[Image] | None) -> None:
    """Hold a mirror against the model.

    Args:
        pipeline: what was drawn.
        database: its database.
        place: the sink's number.
        number: the table's.
        held: what is in the mirror; null where there is none.

    Raises:
        Difference: it holds something else.
    """
    table = pipeline.tables[number]
    where = f"sink {place}, table {number} ({table.name!r})"
    if not table.included:
        if held is not None:
            raise Difference(f"{where}: it is not captured, and is there")
    elif _mirrors(pipeline) and number not in database.off:
        _require_equal(
            held or Counter(), _wanted(database, number, filtered=(place, number) in pipeline.filtered), where
        )


def _wanted(database: Database, number: int, *, filtered: bool) -> Counter[Image]:
    """The rows of a table, or those of them that a filter lets through."""
    rows = database.rows[number]
    return Counter(database.image(number, row) for row in rows if not filtered or database.is_even(number, row))


def _mirrors(pipeline: Pipeline) -> bool:
    """Whether the options let every row and every change through."""
    options = dict(pipeline.options)
    return not options.get("skipped_operations") and options["snapshot_mode"] not in ("no_data", "recovery")


def _require_repeated(attempts: Sequence[Sequence[Row]]) -> None:
    """A batch that comes again has the same changes, but for those that a row of it says are lost."""
    for rows in attempts[1:]:
        gaps = [row for row in rows if row["op"] == "gap" and row not in attempts[0]]
        if _kept(rows, gaps) != _kept(attempts[0], gaps):
            raise Difference("a batch that comes again has other changes")


def _kept(rows: Sequence[Row], gaps: Sequence[Row]) -> list[Row]:
    """What is streamed, without what gaps take away, and without how many events transactions in them have."""
    kept = []
    for row in rows:
        places = [gap["table"] for gap in gaps if _is_in(row, gap)]
        if row["op"] in ("r", "schema", "gap") or row["table"] in places or (places and row["table"] is None):
            continue
        kept.append({**row, "transaction": None} if places else row)
    return kept


def _is_in(row: Row, gap: Row) -> bool:
    facts = dict(gap["source"])
    unit = "scn" if "from_scn" in facts else "lsn"
    return bool(facts[f"from_{unit}"] <= row["position"].split("/")[0] <= facts[f"to_{unit}"])


def _require_equal(held: Counter[Image], wanted: Counter[Image], where: str) -> None:
    if held != wanted:
        missing, extra = wanted - held, held - wanted
        raise Difference(f"{where}: missing {sorted(map(str, missing))[:5]}, too much {sorted(map(str, extra))[:5]}")


def _of(table: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["table"] is not None and row["table"]["name"] == table]


def _image(pairs: Any) -> Image:
    return tuple(sorted((name, text) for name, text in dict(pairs).items() if not name.startswith(ADDED)))


def _changes(rows: Sequence[Row]) -> list[Row]:
    # A row that is read and that a filter leaves out is told to tables as a delete.
    told = (row for row in rows if row["op"] in ("c", "u", "d") and row["snapshot"] is None)
    return sorted(told, key=lambda row: row["position"])


def _lacks_deletes(batches: Sequence[Sequence[Row]]) -> bool:
    """Whether a gap says that deletes are lost, and no read of the whole table comes after it."""
    lacks = False
    for batch in batches:
        gaps = [row["position"] for row in batch if row["op"] == "gap"]
        ends = [row["position"] for row in batch if row["snapshot"] in SNAPSHOT_ENDS]
        lacks = (lacks and not ends) or (bool(gaps) and max(gaps) > max(ends, default=""))
    return lacks


def _mirror(batches: Sequence[Sequence[Row]]) -> Counter[Image]:
    """The rows of a table with a key: of each key the newest, by position and then as they came."""
    held: dict[str, tuple[str, Image | None]] = {}

    def put(key: str, position: str, image: Image | None) -> None:
        if key not in held or held[key][0] <= position:
            held[key] = (position, image)

    for batch in batches:
        told = (row for row in batch if row["op"] in "rcud" or row["snapshot"] in SNAPSHOT_ENDS)
        for row in sorted(told, key=lambda row: row["position"]):
            if row["snapshot"] in SNAPSHOT_ENDS:
                # What was there before and was not read again is gone.
                begun = str(row["position"]).split("/")[0] + "/"
                held = {key: value for key, value in held.items() if value[0] >= begun}
            if row["op"] == "schema":
                continue
            after = None if row["op"] == "d" else _image(row["after"])
            if row["op"] == "u" and row["before"] is not None:
                before = dict(row["before"])
                old = json.dumps([before[name] for name, _ in row["key"]], separators=(",", ":"), ensure_ascii=False)
                if json.loads(old) != json.loads(row["key_text"]):
                    put(old, row["position"], None)
            put(row["key_text"], row["position"], after)
    return Counter(image for _, image in held.values() if image is not None)


def _bag(batches: Sequence[Sequence[Row]], where: str) -> Counter[Image]:
    """The rows of a table without a key: each change takes out what was and puts in what is."""
    held: Counter[Image] = Counter()
    for batch in batches:
        if any(row["snapshot"] is not None for row in batch):
            # It is read as a whole, perhaps once more.
            held.clear()
        for row in sorted((row for row in batch if row["op"] in "rcud"), key=lambda row: row["position"]):
            if row["op"] == "d" and row["snapshot"] is not None:
                continue
            if row["op"] in "ud":
                before = _image(row["before"])
                if not held[before]:
                    raise Difference(f"{where}: a change of a row that is not there: {before}")
                held[before] -= 1
            if row["op"] != "d":
                held[_image(row["after"])] += 1
    return +held


def _require_history(
    database: Database,
    number: int,
    batches: Sequence[Sequence[Row]],
    skipped: str,
    begun: int,
    where: str,
    *,
    filtered: bool,
) -> None:
    """Every change once, in order: what was streamed is the end of what happened, and all since the first batch."""
    found: list[tuple[str, Events]] = []
    for batch in batches:
        grouped: dict[str, list[Row]] = {}
        for row in _changes(batch):
            grouped.setdefault(str(row["position"]).split("/")[0], []).append(row)
        for commit, rows in grouped.items():
            if found and found[-1][0] >= commit:
                raise Difference(f"{where}: commit {commit} comes after {found[-1][0]}")
            found.append((commit, _net([_told(row) for row in rows])))
    happened = [
        (i, _net([_seen(database, number, event, skipped, filtered=filtered) for event in commit.get(number, ())]))
        for i, commit in enumerate(database.commits)
    ]
    nothing: Events = (Counter(), Counter())
    streamed = [events for _, events in found if events != nothing]
    wanted = [(i, events) for i, events in happened if events != nothing]
    needed = sum(i >= begun for i, _ in wanted)
    tail = [events for _, events in wanted[len(wanted) - len(streamed) :]]
    if len(streamed) < needed or len(streamed) > len(wanted) or streamed != tail:
        told = "; ".join(_written(events) for events in streamed)
        real = "; ".join(_written(events) for _, events in wanted)
        raise Difference(f"{where}: streamed {told or 'nothing'}; happened {real}; needed the last {needed}")


def _told(row: Row) -> tuple[Image | None, Image | None]:
    before = None if row["op"] == "c" or row["before"] is None else _image(row["before"])
    return before, None if row["op"] == "d" else _image(row["after"])


def _seen(
    database: Database, number: int, event: Event, skipped: str, *, filtered: bool
) -> tuple[Image | None, Image | None]:
    shown = [row if row is None or not filtered or database.is_even(number, row) else None for row in event]
    before, after = (None if row is None else database.image(number, row) for row in shown)
    if before is None and after is None:
        return before, after
    before_all, after_all = event
    op = "c" if before_all is None else "d" if after_all is None else "u"
    return (None, None) if op in skipped.split(",") else (before, after)


def _net(events: Sequence[tuple[Image | None, Image | None]]) -> Events:
    gone = Counter(before for before, _ in events if before is not None)
    came = Counter(after for _, after in events if after is not None)
    both = gone & came
    return gone - both, came - both


def _written(events: Events) -> str:
    return f"-{[dict(image) for image in events[0].elements()]} +{[dict(image) for image in events[1].elements()]}"
