"""Rule: each message of pgoutput is read to the last byte, or refused with a sentence."""

import pytest
from tests.sources.postgresql.recorded_messages import recorded

from headrace.errors import CaptureError, FormatError, HeadraceError
from headrace.sources.postgresql.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Keepalive,
    Message,
    Origin,
    Truncate,
    TypeMessage,
    Update,
    XLogData,
    read,
)
from headrace.sources.postgresql.relation import Relation, RelationColumn

RECORDING = recorded("changes")


def contents(step, *kinds):
    """What the transactions of a step say."""
    start, end = RECORDING.window(step)
    found, inside = [], False
    for message in map(read, RECORDING.payloads):
        if isinstance(message, Keepalive):
            continue
        content = message.content
        if isinstance(content, Begin):
            inside = start <= content.commit < end
        if inside or (isinstance(content, Message) and not content.transactional and start < content.lsn <= end):
            found.append(content)
    return [content for content in found if isinstance(content, kinds or object)]


def test_a_transaction_begins_and_ends_with_the_place_of_its_commit():
    begin, commit = contents("insert", Begin, Commit)
    assert begin.commit == commit.commit < commit.end
    assert begin.time == commit.time > 1_700_000_000_000_000


def test_rows_have_texts_and_nulls():
    first, second = contents("insert", Insert)
    assert first.new == ("1", "one", "t", "1.50", "2026-01-02 03:04:05", None)
    assert second.new == ("2", None, None, None, None, "")


def test_texts_of_any_characters():
    (row,) = contents("text of several bytes", Insert)
    assert row.new[1] == 'é €😀 "\\ \n \x01'


def test_a_large_value_that_did_not_change_is_not_in_the_message():
    kept, changed = contents("large value", Update)
    assert kept.new[5] is UNCHANGED
    assert changed.new[5] == "y" * 2100


def test_the_old_row_is_said_as_the_replica_identity_has_it():
    (update,) = contents("update", Update)
    assert update.old is None
    moved, renamed = contents("key", Update)
    assert moved.by_key and moved.old == ("4", None, None, None, None, None) and moved.new[0] == "14"
    assert renamed.old[0] == "1" and renamed.new[:2] == ("11", "moved")
    assert [d.old[0] for d in contents("delete", Delete)] == ["2", "3"]
    first, _, by_key = contents("whole", Update)
    assert not first.by_key and first.old == ("1", "one", "x" * 2100) and first.new == ("1", None, UNCHANGED)
    assert by_key.old[0] == "1" and by_key.new[0] == "2"
    assert contents("index", Delete) == [Delete(RECORDING.oids["by_index"], (None, "b", None), True)]


def test_a_table_is_described_before_its_rows():
    (relation,) = contents("odd names", Relation)
    columns = (RelationColumn('A "b', 23, -1, True), RelationColumn("é", 25))
    assert relation == Relation(RECORDING.oids["Odd.Name"], "public", "Odd.Name", "d", columns)


def test_types_that_are_not_built_in_are_named():
    assert [(t.schema, t.name) for t in contents("types", TypeMessage)] == [
        ("public", "mood"),
        ("pg_catalog", "numeric"),
    ]


def test_tables_that_one_statement_empties():
    cascade, restart = contents("truncate", Truncate)
    assert set(cascade.oids) == {RECORDING.oids["emptied"], RECORDING.oids["emptied_too"]} and cascade.cascade
    assert restart == Truncate((RECORDING.oids["emptied_too"],), cascade=False, restart_identity=True)


def test_logical_messages():
    found = contents("messages", Message)
    assert [(m.transactional, m.prefix, m.content) for m in found] == [
        (False, "app", b"at once"),
        (False, "other", b"before"),
        (True, "app", b"\0\xff"),
        (True, "headrace.signal", b'{"id": "1"}'),
    ]


def test_where_a_transaction_was_first_committed():
    assert contents("origin", Origin) == [Origin(0x1234, "elsewhere")]


def test_how_far_the_server_decoded():
    last = read(RECORDING.payloads[-1])
    assert isinstance(last, Keepalive) and last.lsn >= RECORDING.bounds[-1]


@pytest.mark.parametrize("payload", RECORDING.payloads)
def test_a_payload_that_is_cut_off_or_too_long_is_refused(payload):
    for size in range(len(payload)):
        with pytest.raises(FormatError):
            read(payload[:size])
    with pytest.raises(FormatError):
        read(payload + b"\0")


@pytest.mark.parametrize(
    ("name", "letters", "error", "words"),
    [
        ("prepared", "bPKr", CaptureError, "two_phase"),
        ("parts", "SE", FormatError, "in parts before it is committed"),
    ],
)
def test_what_was_not_asked_for_is_refused(name, letters, error, words):
    payloads = [p for p in recorded(name).payloads if p[25:26].decode("latin-1") in set(letters) and p[:1] == b"w"]
    assert {p[25:26].decode() for p in payloads} == set(letters)
    for payload in payloads:
        with pytest.raises(error, match=words):
            read(payload)


def test_text_that_is_not_utf8_is_refused_with_its_place():
    insert = next(p for p in RECORDING.payloads if p[25:26] == b"I")
    with pytest.raises(HeadraceError, match=r"The change at [0-9A-F]+/[0-9A-F]+ holds text that is not UTF-8\."):
        read(insert.replace(b"one", b"on\xff"))


def test_the_place_of_a_message_is_in_its_header():
    rows = [read(p) for p in RECORDING.payloads if p[25:26] == b"I"]
    assert all(isinstance(row, XLogData) and row.start >= RECORDING.bounds[0] for row in rows)
