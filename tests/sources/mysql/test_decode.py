"""Rule: a window of the log gives the change rows of its groups in the order of their positions, wherever it is cut."""

import itertools
import json
import pickle
import struct

import pytest
from tests.sources.mysql.recorded_log import MARIADB, MYSQL, event, format_description, recorded, turn

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import CaptureError, FormatError, OptionError
from headrace.sources.mysql import decode, kernels
from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.decode import WindowDecoder
from headrace.sources.mysql.events import EventType, Frames
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.transactions import Prepared, TransactionEnd, TransactionReader
from headrace.sources.mysql.types import NativeType
from headrace.sources.mysql.window import Window

ENDS = {MARIADB: BinlogPosition(0, 4, 379), MYSQL: BinlogPosition(0, 2, 633)}
CONNECTORS = {MARIADB: "mariadb", MYSQL: "mysql"}
BEGINNING = BinlogPosition(0, 1, 4)


def known(*columns, key=("id",), name="item"):
    natives = tuple(NativeType.of_catalog(kind, charset) for _, kind, charset in columns)
    found = tuple(
        Column(column[0], position, native.logical, native.name)
        for position, (column, native) in enumerate(zip(columns, natives, strict=True), 1)
    )
    return MysqlTable(TableSchema(TableId("shop", "", name), found, key), natives, key)


ITEM = known(("id", "int(10) unsigned", None), ("token", "uuid", None))


def again(name):
    """Reads a recording once more from a place on."""

    def dumped(position):
        frames, begun = Frames(), False
        for data in recorded(name):
            at = frames.number, frames.position
            found = frames.event(data)
            if at == (position.file, position.position) and found.kind != EventType.ROTATE and not begun:
                begun = True
                yield turn(f"binlog.{position.file:06}", position.position)
            if begun:
                yield data

    return dumped


def unasked(xid):
    raise AssertionError(f"{xid} was asked for")


def rows_of(
    name=MARIADB,
    table=ITEM,
    start=BEGINNING,
    end=None,
    feed=1,
    data=None,
    after=None,
    prepared=(),
    earlier=unasked,
    **options,
):
    settings = MysqlSettings.parse(options, owner="source 'mysql_cdc'")
    window = Window(start, end or ENDS[name], "binlog", CONNECTORS[name], {table.path: table}, after or {}, prepared)
    decoder = WindowDecoder(pickle.loads(pickle.dumps(window)), settings, None, again(name), earlier)
    found, events = [], iter(data or recorded(name))
    while part := b"".join(itertools.islice(events, feed)):
        found += decoder.feed(part)
    found += decoder.finish()
    for batch in found:
        batch.validate(full=True)
    return [row for batch in found for row in batch.to_pylist()]


def changes(rows):
    return [row for row in rows if row["op"] != "schema" or row["table_schema"] is None]


def short(row):
    image = dict(row["after"] or row["before"] or [])
    return row["op"], row["position"][5:].lstrip("0:"), image.get("id"), dict(row["source"]).get("pos")


def test_every_change_of_a_real_log_is_a_row_where_it_stands():
    found = [(op, id, pos) for op, _, id, pos in map(short, changes(rows_of()))]
    assert found == [
        ("schema", None, "518"),
        ("c", "1", "1220"),
        ("c", "2", "1220"),
        ("u", "1", "1584"),
        ("d", "2", "1945"),
        *(("c", str(id), "2378") for id in range(10, 14)),
        *(("u", str(id), "2745") for id in range(10, 14)),
        ("schema", None, "2904"),
        ("c", "100", "3305"),
        ("c", "102", "4711"),
        ("c", "104", "5749"),
        ("u", "104", "6390"),
        ("t", None, "6526"),
        ("c", "200", "636"),
    ]


def test_a_row_says_where_it_comes_from():
    first = next(row for row in rows_of(include_query=True) if row["op"] == "c")
    assert first["position"] == "0000:0000000001:00000000000000000864/0000000001/"
    assert first["table"] == {"database": "shop", "schema": "", "name": "item"}
    assert first["key_text"] == '["1"]' and dict(first["key"]) == {"id": "1"}
    facts = dict(first["source"])
    assert facts.pop("query").startswith("INSERT INTO item (id, code, mood")
    assert facts == {
        "connector": "mariadb",
        "server_id": "1",
        "gtid": "0-1-3",
        "file": "binlog.000001",
        "pos": "1220",
        "row": "0",
    }
    image = dict(first["after"])
    assert (image["mood"], image["tags"], image["price"], image["made"], image["bits"]) == (
        "ä",
        "x,y",
        "1.50",
        "2000",
        None,
    )


def test_rows_of_mysql_have_their_thread_and_values_of_its_types():
    rows = changes(rows_of(MYSQL, known(("id", "bigint unsigned", None))))
    assert [(row["op"], dict(row["source"])["thread"]) for row in rows if row["op"] in "cud"] == [
        *((op, "10") for op in "cucuccd")
    ]
    assert [dict(row["after"])["doc"] for row in rows if row["op"] == "u"] == ['{"a": 1}', '{"a": 2}']


def test_the_log_says_the_structure_and_the_catalog_what_it_alone_knows():
    (text,) = {row["table_schema"] for row in rows_of() if row["table_schema"]}
    schema = TableSchema.from_json(json.loads(text))
    kinds = {column.name: str(column.logical) for column in schema.columns}
    assert kinds["token"] == "uuid" and kinds["price"] == "decimal(10,2)" and kinds["hidden"] == "int32"
    assert schema.key == ("id",)


def test_a_distributed_transaction_comes_where_it_is_committed():
    (row,) = [row for row in rows_of() if row["after"] and dict(row["after"])["id"] == "100"]
    assert (
        row["position"].startswith("0000:0000000001:00000000000000003701/") and dict(row["source"])["gtid"] == "0-1-11"
    )
    assert not [row for row in rows_of() if row["after"] and dict(row["after"])["id"] == "101"]


def test_the_rows_of_a_distributed_transaction_are_the_same_where_they_have_no_room_to_be_kept(monkeypatch):
    whole = rows_of()
    monkeypatch.setattr("headrace.sources.mysql.decode.KEPT_BYTES", 0)
    assert rows_of() == whole


def test_a_distributed_transaction_of_an_earlier_window_is_asked_for_where_nobody_told_of_it():
    asked = []

    def earlier(xid):
        asked.append(xid)
        return Prepared(xid, BinlogPosition(0, 1, 3020), BinlogPosition(0, 1, 3475))

    log = list(again(MARIADB)(BinlogPosition(0, 1, 3701)))
    rows = rows_of(start=BinlogPosition(0, 1, 3701), end=BinlogPosition(0, 1, 3835), data=log, earlier=earlier)
    assert [short(row)[2] for row in changes(rows)] == ["100"]
    assert asked == ["X'61',X'62',7"]


def test_a_distributed_transaction_of_an_earlier_window_is_read_again():
    held = Prepared("X'61',X'62',7", BinlogPosition(0, 1, 3020), BinlogPosition(0, 1, 3475))
    log = list(again(MARIADB)(BinlogPosition(0, 1, 3701)))
    rows = rows_of(start=BinlogPosition(0, 1, 3701), end=BinlogPosition(0, 1, 3835), data=log, prepared=(held,))
    assert [short(row)[2] for row in changes(rows)] == ["100"]


def edges(name):
    reader = TransactionReader(BEGINNING, ENDS[name], [])
    return [step.end for data in recorded(name) for step in reader.read(data) if isinstance(step, TransactionEnd)]


@pytest.mark.parametrize("name", [MARIADB, MYSQL])
def test_two_windows_have_together_the_rows_of_one(name):
    table = known(("id", "bigint unsigned", None)) if name == MYSQL else ITEM
    whole = rows_of(name, table, provide_transaction_metadata=True)
    held = []
    reader = TransactionReader(BEGINNING, ENDS[name], table_names(table))
    for data in recorded(name):
        held += [step for step in reader.read(data) if isinstance(step, Prepared)]
    for edge in edges(name)[:-1]:
        first = rows_of(name, table, end=edge, provide_transaction_metadata=True)
        before = tuple(one for one in held if one.end <= edge)
        second = rows_of(name, table, start=edge, prepared=before, provide_transaction_metadata=True)
        assert stated(first) + stated(second) == stated(whole)


def stated(rows):
    """Rows that may be compared: the schema of a truncated table is that of its last rows, or the catalog's."""
    return [{**row, "schema_id": row["schema_id"] if row["op"] != "t" else None} for row in changes(rows)]


def table_names(table):
    return [(table.id.database, table.id.name)]


@pytest.mark.parametrize("name", [MARIADB, MYSQL])
def test_rows_do_not_depend_on_how_the_log_is_cut_into_feeds_and_blocks(name, monkeypatch):
    table = known(("id", "bigint unsigned", None)) if name == MYSQL else ITEM
    whole = rows_of(name, table, provide_transaction_metadata=True)
    assert rows_of(name, table, feed=1000, provide_transaction_metadata=True) == whole
    monkeypatch.setattr(decode, "BLOCK_BYTES", 1)
    monkeypatch.setattr(decode, "_BATCH_ROWS", 1)
    assert rows_of(name, table, provide_transaction_metadata=True) == whole
    monkeypatch.setattr(decode, "_BLOCK_STEPS", 1)
    assert rows_of(name, table, provide_transaction_metadata=True) == whole


@pytest.mark.parametrize("name", [MARIADB, MYSQL])
def test_positions_ascend(name):
    table = known(("id", "bigint unsigned", None)) if name == MYSQL else ITEM
    positions = [row["position"] for row in rows_of(name, table, provide_transaction_metadata=True)]
    assert positions == sorted(set(positions))


def test_events_are_numbered_in_their_transaction_with_its_edges():
    rows = [row for row in changes(rows_of(provide_transaction_metadata=True)) if "5468" in row["position"]]
    assert [(row["op"], row["transaction"]["id"], row["transaction"]["total_order"]) for row in rows] == [
        ("begin", "0-1-18", None),
        ("c", "0-1-18", 1),
        ("u", "0-1-18", 2),
        ("end", "0-1-18", 2),
    ]
    assert dict(rows[-1]["source"])["data_collections"] == '[{"data_collection":"shop.item","event_count":2}]'


@pytest.mark.parametrize(
    ("skipped", "left"), [("c", "uduuuuut"), ("u,d,t", "ccccccccc" + "c"), ("t", "ccudccccuuuucccuc")]
)
def test_operations_that_are_skipped_are_left_out(skipped, left):
    assert "".join(row["op"] for row in changes(rows_of(skipped_operations=skipped)) if row["op"] != "schema") == left


def test_changes_that_the_snapshot_has_are_left_out():
    upto = BinlogPosition(0, 1, 6484).text
    assert [short(row)[2] for row in changes(rows_of(after={"shop.item": upto}))] == ["200"]


def test_columns_are_left_out_and_masked():
    rows = rows_of(column_exclude_list="shop.item.mood", **{"column.mask.with.3.chars": "shop.item.code"})
    image = dict(next(row for row in rows if row["op"] == "c")["after"])
    assert image["code"] == "***" and "mood" not in image


def test_a_protected_column_under_another_name_stops():
    hidden = MysqlTable(ITEM.schema, ITEM.natives, ("id",), protected=("secret",))
    with pytest.raises(OptionError, match="may be column 'secret' under another name"):
        rows_of(table=hidden, **{"column.mask.with.3.chars": "shop.item.secret"})


# A log by hand: what the servers wrote is not there, so that each case can be made.

GTID = (EventType.MARIADB_GTID, struct.pack("<QIB", 9, 0, 0) + bytes(6))
ALONE = (EventType.MARIADB_GTID, struct.pack("<QIB", 9, 0, 1) + bytes(6))
XID = (EventType.XID, bytes(8))
PLAIN = b""
NAMES = b"\x04\x07\x02id\x01a\x01b" + b"\x02\x01\x2d" + b"\x08\x01\x00" + b"\x01\x01\x00"
ABLE = known(("id", "int", None), ("a", "int", None), ("b", "varchar(3)", "utf8mb4"), name="t")


def table_map(fields=NAMES, codes=b"\3\3\x0f", metas=b"\2\x0c\0", nulls=b"\6"):
    said = b"\x04shop\0\x01t\0" + bytes([len(codes)]) + codes + metas + nulls + fields
    return EventType.TABLE_MAP, struct.pack("<IHH", 7, 0, 0) + said


def rows_event(kind, bits, *images):
    return kind, struct.pack("<IHH", 7, 0, 1) + b"\x03" + bits + b"".join(images)


def statement(text):
    return EventType.QUERY, struct.pack("<IIBHH", 9, 0, 4, 0, 0) + b"shop\0" + text.encode()


def number(*values):
    return struct.pack(f"<{len(values)}i", *values)


INSERTED = rows_event(EventType.WRITE_ROWS_V1, b"\7", b"\0" + number(1, 2) + b"\1x")


def by_hand(*parts, table=ABLE, **options):
    log = [turn(), format_description(server="11-MariaDB")]
    position = 4 + len(log[1])
    for kind, body in parts:
        log.append(event(kind, body, start=position))
        position += len(log[-1])
    return rows_of(table=table, start=BinlogPosition(0, 7, 4), end=BinlogPosition(0, 7, position), data=log, **options)


def test_a_minimal_image_has_what_did_not_change_from_the_row_before():
    rows = by_hand(
        GTID,
        table_map(),
        rows_event(EventType.UPDATE_ROWS_V1, b"\1\2", b"\0" + number(5), b"\0" + number(6)),
        XID,
        GTID,
        table_map(),
        rows_event(EventType.DELETE_ROWS_V1, b"\1", b"\0" + number(5)),
        XID,
    )
    update, delete = changes(rows)
    assert (update["before"], update["after"]) == ([("id", "5")], [("id", "5"), ("a", "6")])
    assert (delete["before"], delete["key_text"]) == ([("id", "5")], '["5"]')


def test_a_change_of_the_key_counts_for_two_events():
    update = rows_event(EventType.UPDATE_ROWS_V1, b"\7\7", b"\6" + number(1), b"\6" + number(2))
    rows = by_hand(GTID, table_map(), update, XID, provide_transaction_metadata=True)
    (row,) = [row for row in rows if row["op"] == "u"]
    assert (row["before"][0], row["after"][0], row["key_text"]) == (("id", "1"), ("id", "2"), '["2"]')
    assert rows[-1]["op"] == "end" and rows[-1]["transaction"]["total_order"] == 2


def test_an_update_of_nothing_is_left_out_where_it_is_asked_for():
    update = rows_event(EventType.UPDATE_ROWS_V1, b"\7\7", b"\6" + number(1), b"\6" + number(1))
    assert changes(by_hand(GTID, table_map(), update, XID, skip_messages_without_change=True)) == []
    assert len(changes(by_hand(GTID, table_map(), update, XID))) == 1


def test_a_column_that_is_added_changes_the_schema_where_the_rows_do():
    rows = by_hand(
        GTID, table_map(), INSERTED, XID, ALONE, statement("ALTER TABLE t DROP b"),
        GTID, table_map(b"\x04\x05\x02id\x01a\x08\x01\x00\x01\x01\x00", b"\3\3", b"\0", b"\2"),
        (EventType.WRITE_ROWS_V1, struct.pack("<IHH", 7, 0, 1) + b"\x02\3\0" + number(3, 4)), XID,
    )  # fmt: skip
    assert [row["op"] for row in rows] == ["schema", "c", "schema", "schema", "c"]
    assert dict(rows[2]["source"])["ddl"] == "ALTER TABLE t DROP b" and rows[2]["table_schema"] is None
    assert '"b"' in rows[0]["table_schema"] and '"b"' not in rows[3]["table_schema"]
    assert rows[-1]["after"] == [("id", "3"), ("a", "4")]


def test_columns_without_names_are_those_of_the_catalog_where_it_can_prove_it():
    whole = MysqlTable(
        TableSchema(
            ABLE.id,
            tuple(
                Column(c.name, c.position, c.logical, c.native_type, nullable=c.name != "id")
                for c in ABLE.schema.columns
            ),
            ("id",),
        ),
        ABLE.natives,
        ("id",),
    )
    (row,) = changes(by_hand(GTID, table_map(PLAIN), INSERTED, XID, table=whole))
    assert row["after"] == [("id", "1"), ("a", "2"), ("b", "x")] and row["key_text"] == '["1"]'
    for parts, table in [
        ([ALONE, statement("ALTER TABLE t MODIFY a INT"), GTID, table_map(PLAIN), INSERTED, XID], whole),
        ([GTID, table_map(PLAIN), INSERTED, XID], ITEM_NAMED_T),
        ([GTID, table_map(PLAIN, nulls=b"\0"), INSERTED, XID], whole),
    ]:
        with pytest.raises(CaptureError, match=r"does not name the columns of table 'shop.t'") as error:
            by_hand(*parts, table=table)
        assert "binlog_row_metadata = 'FULL'" in error.value.remedy


ITEM_NAMED_T = known(("id", "int", None), ("a", "bigint", None), ("b", "varchar(3)", "utf8mb4"), name="t")


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE t",
        "CREATE OR REPLACE TABLE t (i INT)",
        "ALTER TABLE t TRUNCATE PARTITION p",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x",
    ],
)
def test_a_statement_that_takes_rows_without_a_trace_is_a_change_of_the_schema(text):
    (row,) = by_hand(ALONE, statement(text))
    assert (row["op"], dict(row["source"])["ddl"], row["schema_id"]) == ("schema", text, None)


@pytest.mark.parametrize(
    ("parts", "error", "what"),
    [
        (
            [rows_event(EventType.WRITE_ROWS_V1, b"\7", b"\0" + number(1))],
            FormatError,
            r"'shop.t' at binlog.000007, position \d+ can't be read: an event is shorter than its values in column 'a'",
        ),
        ([rows_event(EventType.WRITE_ROWS_V1, b"\7", b"\0" + number(1, 2) + b"\1\xff")], FormatError, "in column 'b'"),
        (
            [rows_event(EventType.WRITE_ROWS_V1, b"\6", b"\0" + number(2) + b"\1x")],
            CaptureError,
            "does not have all columns of the table's key",
        ),
    ],
)
def test_rows_that_are_not_as_their_table_stop(parts, error, what):
    with pytest.raises(error, match=what):
        by_hand(GTID, table_map(), *parts, XID)


def test_a_transaction_with_too_many_rows_for_a_position_stops(monkeypatch):
    monkeypatch.setattr(decode, "_MOST_ROWS", 1)
    with pytest.raises(CaptureError, match="too large"):
        by_hand(GTID, table_map(), INSERTED, XID)


def test_what_is_compiled_ahead_of_use_is_a_log_that_can_be_read():
    kernels.compile_all()
