"""Rule: whatever the log says and however it is cut, the decoder's rows are those of the exact reader."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.postgresql.exact_rows import ExactRows
from tests.sources.postgresql.sent_log import Sent, cut, window

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.sources.postgresql import decode
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.decode import WindowDecoder
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.pgoutput import UNCHANGED, Delete, Insert, Message, Origin, Truncate, Update
from headrace.sources.postgresql.relation import Relation, RelationColumn
from headrace.sources.postgresql.types import TypeCatalog

TIME = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
TYPES = TypeCatalog()
BOOL, BYTEA, INT4, TEXT, MOMENT, DOUBLE = 16, 17, 23, 25, 1184, 701
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
VALUES = {
    BOOL: st.sampled_from("tf"),
    BYTEA: st.binary(max_size=4).map(lambda data: "\\x" + data.hex()),
    INT4: st.integers(-9, 99).map(str),
    TEXT: WORDS,
    MOMENT: st.sampled_from(["2026-01-02 03:04:05.5+00", "infinity", "0044-03-15 10:00:00+00 BC"]),
    DOUBLE: st.sampled_from(["1.5", "NaN", "-0", "1e+15"]),
}


def known(oid, key):
    columns = tuple(Column(name, number, LogicalType("int32"), "int4") for number, name in enumerate(key, 1))
    schema = TableSchema(TableId("db", "public", f"t{oid}"), columns, key)
    return PostgresTable(schema, (TYPES.resolve(INT4),) * len(key), oid=oid, leaves=(oid,))


@st.composite
def relations(draw, oid):
    """The states of one table: the key's columns are the first ones, of numbers."""
    identity = draw(st.sampled_from("ddfi"))
    keys = draw(st.integers(0 if identity == "f" else 1, 2))
    kinds = [INT4] * keys + draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=not keys, max_size=3))
    columns = [RelationColumn(f"c{n}", kind, -1, identity == "f" or n < keys) for n, kind in enumerate(kinds)]
    more = [*columns, RelationColumn("é new", TEXT)]
    states = [Relation(oid, "public", f"t{oid}", identity, tuple(found)) for found in (columns, more)]
    return tuple(f"c{n}" for n in range(keys)), states


@st.composite
def changes(draw, tables):
    """A change, and the tables that it is of."""
    op = draw(st.sampled_from(["c", "c", "u", "u", "d", "t", "m"]))
    if op == "m":
        return (), Message(True, draw(st.integers(1, 99)), draw(st.sampled_from(["a", "signal"])), draw(st.binary()))
    if op == "t":
        found = draw(st.lists(st.sampled_from(sorted(tables)), min_size=1, unique=True))
        return tuple(draw(st.sampled_from(tables[oid][1])) for oid in found), Truncate(tuple(found), False, False)
    oid = draw(st.sampled_from(sorted(tables)))
    key, states = tables[oid]
    relation = draw(st.sampled_from(states))
    new = [draw(VALUES[c.oid] if n < len(key) else st.none() | VALUES[c.oid]) for n, c in enumerate(relation.columns)]
    if op == "c":
        return (relation,), Insert(oid, tuple(new))
    old = [draw(VALUES[c.oid] if n < len(key) else st.none() | VALUES[c.oid]) for n, c in enumerate(relation.columns)]
    if draw(st.booleans()):
        old = [o if draw(st.booleans()) else n for n, o in zip(new, old, strict=True)]
    by_key = relation.identity != "f"
    if by_key:
        old = [value if n < len(key) else None for n, value in enumerate(old)]
    if op == "d":
        return (relation,), Delete(oid, tuple(old), by_key)
    texts = [n for n, c in enumerate(relation.columns) if c.oid == TEXT and n >= len(key)]
    for place in texts:
        if draw(st.booleans()):
            new[place] = UNCHANGED
    if by_key and draw(st.booleans()):
        return (relation,), Update(oid, tuple(new))
    return (relation,), Update(oid, tuple(new), tuple(old), by_key)


@st.composite
def logs(draw):
    """Transactions of several tables, one of them not captured, and messages in between."""
    tables = {oid: draw(relations(oid)) for oid in range(1, draw(st.integers(2, 5)))}
    place, found = 1000, []
    for number in range(draw(st.integers(1, 6))):
        place += draw(st.integers(1, 3)) * 16
        if draw(st.integers(0, 3)) == 0:
            message = Message(False, place, "a", b"x")
            found.append(Sent(place, place, 0, (((), message),)))
            continue
        said = draw(st.lists(changes(tables), max_size=6))
        origin = draw(st.none() | st.just(Origin(7, "elsewhere")))
        found.append(Sent(place, place + 16, 700 + number, tuple(said), origin))
        place += 16
    captured = {oid: known(oid, key) for oid, (key, _) in tables.items() if oid != 1}
    return captured, found, place + 16


OPTIONS = st.fixed_dictionaries(
    {
        "provide_transaction_metadata": st.booleans(),
        "messages": st.booleans(),
        "signal_prefix": st.just("signal"),
        "skip_messages_without_change": st.booleans(),
        "skipped_operations": st.lists(st.sampled_from("cudt"), unique=True).map(
            lambda found: ",".join(found) or "none"
        ),
    }
)


def decoder(captured, options, start, end):
    return WindowDecoder(start, end, captured, TYPES, options, "db", TIME)


def shown(rows):
    """Rows as they are compared: maps as dictionaries, in the order of their entries."""
    maps = ("key", "before", "after", "source")
    return [
        {name: list(value.items()) if name in maps and value is not None else value for name, value in row.items()}
        for row in rows
    ]


def decoded(captured, options, start, end, payloads, sizes):
    reader = decoder(captured, options, start, end)
    batches = [batch for part in cut(payloads, sizes) for batch in reader.feed(part)]
    assert reader.finished
    batches += reader.finish()
    rows = [row for batch in batches for row in batch.to_pylist()]
    for batch in batches:
        batch.validate(full=True)
    maps = ("key", "before", "after", "source")
    return shown([{n: dict(v) if n in maps and v is not None else v for n, v in row.items()} for row in rows])


def expected(captured, options, start, end, payloads):
    reader = decoder(captured, options, start, end)
    return shown(ExactRows(start, end, reader._table_of, options, TIME).rows(payloads))


def parsed(options):
    return PostgresSettings.parse({"database": "db", **options}, owner="source")


@pytest.fixture(autouse=True, params=[(5, 1 << 20), (1000, 300)], ids=["few messages", "few bytes"])
def small_blocks(monkeypatch, request):
    rows, size = request.param
    monkeypatch.setattr(decode, "BLOCK_ROWS", rows)
    monkeypatch.setattr(decode, "BATCH_BYTES", size)


@settings(suppress_health_check=list(HealthCheck))
@given(log=logs(), options=OPTIONS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_the_rows_are_those_of_the_exact_reader_however_the_log_is_cut(log, options, sizes):
    captured, sent, end = log
    options = parsed(options)
    payloads = window(sent, 1000, beyond=end)
    found = decoded(captured, options, 1000, end, payloads, sizes)
    wanted = expected(captured, options, 1000, end, payloads)
    assert [{name: row[name] for name in wanted[0]} for row in found] == wanted if wanted else not found
    positions = [row["position"] for row in found]
    assert positions == sorted(set(positions))


@settings(suppress_health_check=list(HealthCheck))
@given(log=logs(), options=OPTIONS, at=st.integers(0, 6))
def test_two_windows_give_the_rows_of_both(log, options, at):
    captured, sent, end = log
    options = parsed(options)
    middle = sent[min(at, len(sent) - 1)].place
    whole = decoded(captured, options, 1000, end, window(sent, 1000, beyond=end), [7])
    first = decoded(captured, options, 1000, middle, window(sent, 1000, beyond=end), [7])
    second = decoded(captured, options, middle, end, window(sent, middle, beyond=end), [7])

    def without_starts(rows):
        # The first transaction of a window names the window's start, and each window describes its tables.
        kept = [row for row in rows if row["op"] != "schema"]
        return [row | {"source": [fact for fact in row["source"] if fact[0] != "sequence"]} for row in kept]

    assert without_starts(first + second) == without_starts(whole)
    assert pa.array([row["position"] for row in whole], pa.string()).equals(
        pa.array(sorted(row["position"] for row in whole), pa.string())
    )
