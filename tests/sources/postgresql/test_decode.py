"""Rule: what the server sends of a window becomes its change rows, in the order of their positions."""

import datetime as dt
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.sources.postgresql.recorded_messages import recorded
from tests.sources.postgresql.sent_log import Sent, keepalive, payload, window

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import CaptureError, FormatError, OptionError
from headrace.sources.log import row_images
from headrace.sources.postgresql import decode
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.decode import WindowDecoder
from headrace.sources.postgresql.kernels import compile_all
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.pgoutput import Begin, Delete, Insert
from headrace.sources.postgresql.relation import Relation, RelationColumn
from headrace.sources.postgresql.types import TypeCatalog
from headrace.wire.compiled import CACHE_VARIABLE

RECORDING = recorded("changes")
KEYS = {"plain": "id", "whole": "id", "by_index": "code", "typed": "id", "emptied": "id", "emptied_too": "id"}
TIME = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def settings(**options):
    return PostgresSettings.parse({"database": "db", **options}, owner="source")


def captured(*names):
    found = {}
    for name in names or RECORDING.oids:
        key = () if name not in KEYS else (KEYS[name],)
        columns = tuple(Column(column, 1, LogicalType("string")) for column in key)
        oid, natives = RECORDING.oids[name], (TypeCatalog().resolve(23),) * len(key)
        schema = TableSchema(TableId("db", "public", name), columns, key)
        found[oid] = PostgresTable(schema, natives, oid=oid, leaves=(oid,))
    return found


def decoded(start, end, *, tables=None, feeds=1000, payloads=RECORDING.payloads, **options):
    """The change rows of a window."""
    decoder = WindowDecoder(start, end, tables or captured(), TypeCatalog(), settings(**options), "db", TIME)
    found = []
    for first in range(0, len(payloads), feeds):
        found += decoder.feed(payloads[first : first + feeds])
    assert decoder.finished
    found += decoder.finish()
    return pa.Table.from_batches(found).to_pylist() if found else []


def of_step(step, **options):
    return decoded(*RECORDING.window(step), **options)


def data(rows):
    return [row for row in rows if row["op"] != "schema"]


def images(rows):
    return [
        (row["op"], *(None if row[name] is None else dict(row[name]) for name in ("key", "before", "after")))
        for row in data(rows)
    ]


def test_a_schema_comes_before_the_first_row_that_follows_it():
    schema, first, second = of_step("insert")
    assert schema["op"] == "schema" and schema["schema_id"] == first["schema_id"] == second["schema_id"]
    assert [row["position"].partition("/")[2] for row in (schema, first, second)] == [
        "0000000000s/",
        "0000000001/",
        "0000000002/",
    ]


def test_a_new_row_has_its_values_and_its_key():
    _, first, _ = of_step("insert")
    assert images([first]) == [
        (
            "c",
            {"id": "1"},
            None,
            {"id": "1", "name": "one", "ok": "true", "price": "1.50", "at": "2026-01-02 03:04:05.000000", "big": None},
        )
    ]
    assert first["key_text"] == '["1"]'
    assert first["table"] == {"database": "db", "schema": "public", "name": "plain"}


def test_positions_ascend_over_all_windows():
    rows = decoded(RECORDING.bounds[0], RECORDING.bounds[-1], provide_transaction_metadata=True, messages=True)
    positions = [row["position"] for row in rows]
    assert positions == sorted(positions) and len(set(positions)) == len(positions)


def test_a_large_value_that_did_not_change_is_absent_and_not_null():
    _, kept, changed = images(of_step("large value"))
    assert kept == ("u", {"id": "4"}, None, {"id": "4", "name": "kept", "ok": None, "price": None, "at": None})
    assert changed[3]["big"] == "y" * 2100


def test_under_full_identity_the_old_row_has_what_the_new_one_leaves_out():
    created, renamed, _, moved, deleted = images(of_step("whole"))
    row = created[3]
    assert renamed == ("u", {"id": "1"}, row, row | {"name": None})
    assert moved == ("u", {"id": "2"}, row | {"name": None}, row | {"name": None, "id": "2"})
    assert deleted == ("d", {"id": "2"}, row | {"name": None, "id": "2"}, None)


def test_a_changed_key_is_one_update_with_the_old_key():
    moved, renamed = images(of_step("key"))
    assert moved[:3] == ("u", {"id": "14"}, {"id": "4"}) and "big" not in moved[3]
    assert renamed[:3] == ("u", {"id": "11"}, {"id": "1"})


def test_a_delete_has_the_key_and_nothing_else():
    assert images(of_step("delete")) == [("d", {"id": i}, {"id": i}, None) for i in ("2", "3")]


def test_the_columns_of_the_identity_index_are_the_key():
    created, renamed, moved, deleted = images(of_step("index"))
    assert [row[1] for row in (created, renamed, moved, deleted)] == [{"code": c} for c in "aabb"]
    assert renamed[2] is None and moved[2] == {"code": "a"} and deleted[2] == {"code": "b"}


def test_rows_without_a_key_have_none():
    rows = data(of_step("keyless"))
    assert [(row["key"], row["key_text"]) for row in rows] == [(None, None)] * 2


def test_values_have_canonical_texts():
    first, second = (row[3] for row in images(of_step("types")))
    assert first == {
        "id": "1", "mood": "sad", "paid": "12.50", "tags": '["a",null,"b c"]', "raw": "AP8=",
        "zone": "2026-01-02T01:04:05.600000Z", "ratio": "1e15",
    } | {"ratio": first["ratio"]}  # fmt: skip
    assert float(first["ratio"]) == 1e15
    assert second == {**dict.fromkeys(first), "id": "2", "zone": "infinity", "ratio": "NaN"}


def test_names_may_have_any_characters():
    (row,) = data(of_step("odd names"))
    assert row["table"]["name"] == "Odd.Name" and dict(row["after"]) == {'A "b': "1", "é": "é"}


def test_rows_of_several_tables_come_in_the_order_of_their_changes():
    rows = of_step("several tables")
    assert [(row["op"], row["table"]["name"], row["position"].split("/")[1]) for row in rows] == [
        ("schema", "plain", "0000000000s"),
        ("c", "plain", "0000000001"),
        ("schema", "whole", "0000000001s"),
        ("c", "whole", "0000000002"),
        ("c", "plain", "0000000003"),
        ("d", "whole", "0000000004"),
    ]


def test_tables_that_are_not_captured_count_in_the_order():
    rows = of_step("several tables", tables=captured("whole"))
    assert [row["position"].split("/")[1] for row in data(rows)] == ["0000000002", "0000000004"]


def test_what_was_rolled_back_is_not_there():
    assert of_step("rolled back") == []


def test_a_truncate_is_a_row_for_each_captured_table():
    rows = of_step("truncate")
    emptied = [(r["table"]["name"], *r["position"].split("/")[1:]) for r in rows if r["op"] == "t"]
    assert emptied[0][1:] == ("0000000001", "00000") and emptied[1][1:] == ("0000000001", "00001")
    assert {name for name, *_ in emptied[:2]} == {"emptied", "emptied_too"}
    assert emptied[2] == ("emptied_too", "0000000001", "00000")
    assert [row["table"]["name"] for row in of_step("truncate", tables=captured("emptied")) if row["op"] == "t"] == [
        "emptied"
    ]
    assert not [row for row in of_step("truncate", skipped_operations="t") if row["op"] == "t"]


def test_a_changed_structure_is_announced_at_its_place():
    rows = of_step("structure")
    assert [(row["op"], row["position"].split("/")[1]) for row in rows] == [
        ("schema", "0000000000s"),
        ("c", "0000000001"),
        ("schema", "0000000001s"),
        ("c", "0000000002"),
        ("schema", "0000000000s"),
        ("c", "0000000001"),
        ("schema", "0000000000s"),
        ("c", "0000000001"),
    ]
    first, second, third, fourth = (TableSchema.from_text(row["table_schema"]) for row in rows[::2])
    assert [c.name for c in first.columns] == ["id", "name", "ok", "price", "at", "big"]
    assert [c.name for c in second.columns] == ["id", "called", "ok", "price", "at", "big", "more"]
    assert [c.name for c in third.columns] == ["id", "called", "ok", "at", "big", "more"]
    assert (third.id.name, fourth.id.name) == ("plain", "renamed")


def test_rows_say_where_in_the_log_they_stand():
    start, end = RECORDING.window("insert")
    first, second = data(of_step("insert"))
    facts = dict(first["source"])
    assert facts.keys() == {"connector", "txId", "lsn", "sequence"} and facts["connector"] == "postgresql"
    assert start <= int(facts["lsn"]) < int(dict(second["source"])["lsn"]) < end
    assert facts["sequence"] == f'["{start}","{facts["lsn"]}"]'
    assert start <= int(first["position"].split("/")[0], 16) < end
    assert first["capture_time"] == TIME and first["event_time"].year == 2026


def test_where_a_transaction_was_first_committed_is_a_fact_of_its_rows():
    (row,) = data(of_step("origin"))
    facts = dict(row["source"])
    assert (facts["origin"], facts["origin_lsn"]) == ("elsewhere", str(0x1234))


def test_logical_messages_are_rows_where_they_are_asked_for():
    assert {row["op"] for row in of_step("messages")} == {"schema", "c"}
    rows = data(of_step("messages", messages=True, signal_prefix="headrace.signal"))
    found = [
        {name: fact for name, fact in row["source"] if name in ("prefix", "content", "transactional", "txId")}
        for row in rows
        if row["op"] == "message"
    ]
    xid = found[2]["txId"]
    assert found == [
        {"prefix": "app", "content": "YXQgb25jZQ==", "transactional": "false"},
        {"prefix": "other", "content": "YmVmb3Jl", "transactional": "false"},
        {"txId": xid, "prefix": "app", "content": "AP8=", "transactional": "true"},
    ]
    assert [row["op"] for row in rows] == ["message", "message", "c", "message", "c"]


@pytest.mark.parametrize(
    ("option", "prefixes", "kept"),
    [
        ("message_prefix_include_list", "APP|none", {"app"}),
        ("message_prefix_exclude_list", "app,headrace.*", {"other"}),
    ],
)
def test_prefixes_of_logical_messages_can_be_chosen(option, prefixes, kept):
    rows = of_step("messages", messages=True, **{option: prefixes})
    assert {dict(row["source"])["prefix"] for row in rows if row["op"] == "message"} == kept


@pytest.mark.parametrize(
    "options",
    [
        {"message_prefix_include_list": "("},
        {"message_prefix_include_list": "a", "message_prefix_exclude_list": "b"},
    ],
)
def test_prefixes_that_contradict_or_are_no_expressions_are_refused(options):
    with pytest.raises(OptionError, match="message_prefix"):
        of_step("messages", **options)


def test_transactions_are_counted():
    begin, _, first, _, second, third, fourth, end = of_step("several tables", provide_transaction_metadata=True)
    name = begin["transaction"]["id"]
    assert name == f"{dict(first['source'])['txId']}:{int(first['position'].split('/')[0], 16)}"
    lsns = [(r["transaction"]["total_order"], r["transaction"]["data_collection_order"]) for r in (first, second)]
    lsns += [(r["transaction"]["total_order"], r["transaction"]["data_collection_order"]) for r in (third, fourth)]
    assert lsns == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert (begin["op"], end["op"], end["transaction"]["total_order"]) == ("begin", "end", 4)
    collections = '[{"data_collection":"public.plain","event_count":2},'
    collections += '{"data_collection":"public.whole","event_count":2}]'
    assert dict(end["source"])["data_collections"] == collections
    assert [row["position"].split("/")[1] for row in (begin, end)] == ["", "z"]


@pytest.mark.parametrize(("skipped", "events"), [("none", 2), ("d", 1), ("c", 1)])
def test_an_update_that_changes_the_key_counts_as_what_becomes_of_it(skipped, events):
    rows = of_step("key", provide_transaction_metadata=True, skipped_operations=skipped)
    assert [row["transaction"]["total_order"] for row in rows if row["op"] == "end"] == [events, events]


def test_an_update_that_changes_nothing_can_be_left_out():
    assert [row[0] for row in images(of_step("whole", skip_messages_without_change=True))] == ["c", "u", "u", "d"]
    # Without the old row nobody knows.
    assert [row[0] for row in images(of_step("update", skip_messages_without_change=True))] == ["u"]


def test_what_is_hidden_does_not_leave():
    options = {"column.mask.with.3.chars": "public.plain.name", "column_exclude_list": "public.plain.(ok|at|big)"}
    rows = data(of_step("insert", **options))
    assert [dict(row["after"]) for row in rows] == [
        {"id": "1", "name": "***", "price": "1.50"},
        {"id": "2", "name": None, "price": None},
    ]


def test_the_log_behind_the_window_is_not_looked_at():
    start, end = RECORDING.window("insert")
    begin = next(n for n, p in enumerate(RECORDING.payloads) if p[25:26] == b"B" and int.from_bytes(p[26:34]) >= end)
    rows = decoded(start, end, payloads=[*RECORDING.payloads[: begin + 1], b"no message"])
    assert rows == of_step("insert")


@pytest.mark.parametrize("feeds", [1, 2, 7])
def test_the_window_is_finished_as_soon_as_its_end_is_known(feeds):
    start, end = RECORDING.window("insert")
    decoder = WindowDecoder(start, end, captured(), TypeCatalog(), settings(), "db", TIME)
    commit = next(n for n, p in enumerate(RECORDING.payloads) if p[25:26] == b"C")
    rows = 0
    for first in range(0, commit + 1, feeds):
        assert not decoder.finished
        rows += sum(
            batch.num_rows for batch in decoder.feed(RECORDING.payloads[first : min(first + feeds, commit + 1)])
        )
    # The next record begins where the window ends.
    assert decoder.finished and rows == 3


TABLE = Relation(7, "public", "t", "d", (RelationColumn("id", 23, -1, True), RelationColumn("day", 1082)))
KNOWN = PostgresTable(
    TableSchema(TableId("db", "public", "t"), (Column("id", 1, LogicalType("int32"), "int4"),), ("id",)),
    (TypeCatalog().resolve(23),),
    oid=7,
    leaves=(7,),
)


def read(payloads, **options):
    return decoded(1000, 2000, payloads=payloads, tables={7: KNOWN}, **options)


def sent(*contents):
    return window([Sent(1500, 1600, 700, tuple(((TABLE,), content) for content in contents))], 1000, beyond=2000)


def test_bytes_that_are_not_as_the_protocol_says_are_refused_with_their_place():
    payloads = sent(Insert(7, ("1", "one")))
    row = next(n for n, p in enumerate(payloads) if p[25:26] == b"I")
    for size in range(25, len(payloads[row])):
        broken = [*payloads[:row], payloads[row][:size], *payloads[row + 1 :]]
        with pytest.raises(FormatError, match=r"The message of pgoutput at 0/5DB .* than its parts\."):
            read(broken)
    with pytest.raises(FormatError, match="at 0/5DB has not the columns that its table was said to have"):
        read(sent(Insert(7, ("1",))))


def test_a_change_of_a_table_that_was_not_described_is_refused():
    payloads = [p for p in sent(Insert(7, ("1", "one"))) if p[25:26] != b"R"]
    with pytest.raises(FormatError, match="at 0/5DB of a table that it did not describe before"):
        read(payloads)


def test_text_that_is_not_utf8_is_refused():
    payloads = [p.replace(b"one", b"o\xffe") for p in sent(Insert(7, ("1", "one")))]
    with pytest.raises(CaptureError, match="The change at 0/5DB holds text that is not UTF-8"):
        read(payloads)


def test_a_change_without_its_key_is_refused():
    with pytest.raises(
        CaptureError, match=r"does not have all columns of the table's key\. Run ALTER TABLE public\.t "
    ):
        read(sent(Delete(7, ("1", None), True)), message_key_columns="public.t:day")


def test_a_key_column_whose_type_changed_since_is_still_the_key():
    whole = replace(TABLE, identity="f", columns=(RelationColumn("id", 21, -1, True), RelationColumn("day", 1082)))
    payloads = window([Sent(1500, 1600, 700, (((whole,), Insert(7, ("1", None))),))], 1000, beyond=2000)
    assert [row["key_text"] for row in data(read(payloads))] == ['["1"]']


def test_rows_of_a_large_transaction_are_given_out_before_it_ends(monkeypatch):
    monkeypatch.setattr(decode, "BLOCK_ROWS", 10)
    decoder = WindowDecoder(1000, 2000, {7: KNOWN}, TypeCatalog(), settings(), "db", TIME)
    opening = [payload(0, Begin(1500, 0, 700)), payload(0, TABLE)]
    rows = [payload(1400, Insert(7, (str(n), None))) for n in range(100)]
    found = list(decoder.feed([*opening, *rows]))
    assert [batch.num_rows for batch in found] == [9, *[10] * 9]
    assert not decoder.finished


def test_changes_that_a_newer_snapshot_has_are_left_out():
    whole = decoded(RECORDING.bounds[0], RECORDING.bounds[-1])
    commits = sorted({row["position"].split("/")[0] for row in whole if row["table"]["name"] == "whole"})
    decoder = WindowDecoder(
        RECORDING.bounds[0], RECORDING.bounds[-1], captured(), TypeCatalog(), settings(), "db", TIME,
        {RECORDING.oids["whole"]: int(commits[1], 16)},
    )  # fmt: skip
    batches = [*decoder.feed(RECORDING.payloads), *decoder.finish()]
    rows = data(pa.Table.from_batches(batches).to_pylist())
    assert rows == [row for row in data(whole) if row["table"]["name"] != "whole" or row["position"] > f"{commits[1]}z"]


def test_more_bytes_than_a_batch_holds_are_refused(monkeypatch):
    monkeypatch.setattr(row_images, "_MOST_BYTES", 10)
    with pytest.raises(CaptureError, match=r"have 11 bytes .* holds 10\..* 'column_exclude_list'"):
        read(sent(Insert(7, ("1", "2026-01-02"))))


def test_prepared_transactions_are_refused():
    for broken in recorded("prepared").payloads:
        if broken[25:26] == b"b":
            with pytest.raises(CaptureError, match="two_phase"):
                read([keepalive(1000), broken, keepalive(2000)])


def test_a_row_outside_of_a_transaction_is_refused():
    with pytest.raises(FormatError, match="is not inside of one transaction"):
        read([payload(0, TABLE), payload(1500, Insert(7, ("1", "one"))), keepalive(2000)])


def test_a_log_that_ends_inside_of_a_transaction_is_refused():
    decoder = WindowDecoder(1000, 2000, {7: KNOWN}, TypeCatalog(), settings(), "db", TIME)
    assert list(decoder.feed([payload(0, Begin(1500, 0, 700))])) == []
    with pytest.raises(FormatError, match="ended inside of the transaction that commits at 0/5DC"):
        list(decoder.finish())


def test_what_setup_compiles_is_read_without_an_error():
    compile_all()


@pytest.mark.soak
def test_what_is_compiled_before_is_all_that_the_decoder_needs(tmp_path):
    """In a folder of kernels of its own: decoding leaves no file there that was not made before."""
    program = (
        "import sys; from pathlib import Path\n"
        "from headrace.sources.postgresql.kernels import compile_all\n"
        "compile_all()\n"
        "made = set(Path(sys.argv[1]).rglob('*.kernel'))\n"
        "from tests.sources.postgresql.test_decode import RECORDING, decoded\n"
        "options = {'provide_transaction_metadata': True, 'skip_messages_without_change': True, 'messages': True}\n"
        "decoded(RECORDING.bounds[0], RECORDING.bounds[-1], **options)\n"
        "print(len(made) > 10, sorted(p.name for p in set(Path(sys.argv[1]).rglob('*.kernel')) - made))"
    )
    environment = {**os.environ, CACHE_VARIABLE: str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.strip() == "True []", done.stderr[-2000:]
