"""Rule: signals are read as Debezium's users write them; one that can't be followed is one sentence."""

from __future__ import annotations

import json

import pytest

from headrace.changes import Column, LogicalType, TableId
from headrace.errors import CaptureError, FormatError, HeadraceError, OptionError
from headrace.sources.signal_files import TakenFiles, present_files, read_file, take_files, write_file
from headrace.sources.signals import (
    SENT,
    ExecuteSnapshot,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    SchemaChanges,
    Signal,
    StopSnapshot,
    Watermark,
    chosen,
    names,
    parse_signal,
    require_signal_columns,
    signal_data,
)

CUSTOMERS = TableId("shop", "dbo", "customers")


def read(type, data=None):
    return parse_signal(Signal("s1", type, data if data is None or isinstance(data, str) else json.dumps(data)))


ONE = {"data-collections": ["dbo.a"]}


@pytest.mark.parametrize(
    ("type", "data", "meaning"),
    [
        ("execute-snapshot", ONE, ExecuteSnapshot(("dbo.a",))),
        ("Execute-Snapshot   ", ONE, ExecuteSnapshot(("dbo.a",))),
        ("execute-snapshot", {**ONE, "type": "incremental"}, ExecuteSnapshot(("dbo.a",))),
        ("execute-snapshot", {**ONE, "type": "INCREMENTAL"}, ExecuteSnapshot(("dbo.a",))),
        ("execute-snapshot", {**ONE, "type": "Blocking"}, ExecuteSnapshot(("dbo.a",), "blocking")),
        ("execute-snapshot", {"data-collections": []}, ExecuteSnapshot(())),
        (
            "execute-snapshot",
            {**ONE, "additional-conditions": [{"data-collection": "dbo.a", "filter": "n > 1"}]},
            ExecuteSnapshot(("dbo.a",), filters=(("dbo.a", "n > 1"),)),
        ),
        (
            "execute-snapshot",
            {**ONE, "additional-condition": "n > 1"},
            ExecuteSnapshot(("dbo.a",), filters=((".*", "n > 1"),)),
        ),
        ("execute-snapshot", {**ONE, "surrogate-key": "n"}, ExecuteSnapshot(("dbo.a",), surrogate_key="n")),
        ("stop-snapshot", None, StopSnapshot()),
        ("stop-snapshot", "", StopSnapshot()),
        ("stop-snapshot", {"data-collections": [], "type": "incremental"}, StopSnapshot()),
        ("stop-snapshot", ONE, StopSnapshot(("dbo.a",))),
        ("pause-snapshot", None, PauseSnapshot()),
        ("resume-snapshot", {"type": "incremental"}, ResumeSnapshot()),
        ("log", {"message": "hello"}, LogMessage("hello")),
        ("schema-changes", {"database": "shop", "changes": "[]"}, SchemaChanges()),
        ("snapshot-window-open", None, Watermark()),
        ("snapshot-window-close", "not looked at", Watermark()),
    ],
)
def test_a_signal_means(type, data, meaning):
    assert read(type, data) == meaning


@pytest.mark.parametrize(
    ("type", "data", "said"),
    [
        ("execute-snapsot", ONE, "has the unknown type 'execute-snapsot'"),
        ("execute-snapshot", '{"data-collections": [', "is not JSON"),
        ("execute-snapshot", "[]", "is not a JSON object"),
        ("execute-snapshot", None, "has no list 'data-collections'"),
        ("execute-snapshot", {"data-collections": "dbo.a"}, "is not a list of texts"),
        ("execute-snapshot", {"data-collections": [1]}, "is not a list of texts"),
        ("execute-snapshot", {**ONE, "type": "full"}, "of type 'full'"),
        ("execute-snapshot", {**ONE, "additional-conditions": "n > 1"}, "that are no list"),
        ("execute-snapshot", {**ONE, "additional-conditions": [{"filter": "n > 1"}]}, "without 'data-collection'"),
        ("log", {}, "has no text 'message'"),
    ],
)
def test_what_can_not_be_followed_is_one_sentence_that_names_the_signal(type, data, said):
    with pytest.raises(FormatError, match="Signal 's1' ") as error:
        read(type, data)
    assert said in str(error.value)
    assert error.value.remedy


def test_no_content_of_broken_data_stands_in_the_sentence():
    with pytest.raises(FormatError) as error:
        read("execute-snapshot", '{"data-collections": ["secret')
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("dbo.customers", True),
        ("shop.dbo.customers", True),
        ("DBO.Customers", True),
        (" dbo.customers ", True),
        (r"shop\.dbo\..*", True),
        (r"dbo\.cust.*", True),
        ("customers", False),
        ("dbo.custom", False),
        ("other.dbo.customers", False),
        ("dbo.customers(", False),
    ],
)
def test_names_are_whole_with_or_without_the_database(pattern, meant):
    assert names(pattern, CUSTOMERS) is meant


def test_a_table_of_exactly_that_name_is_meant_alone():
    odd, plain = TableId("shop", "dbo", "a.b"), TableId("shop", "dbo", "a_b")
    assert chosen("dbo.a.b", [odd, plain]) == [odd]
    assert chosen("dbo.a.b.*", [odd, plain]) == [odd, plain]
    # Not a valid expression, but a name.
    assert chosen("dbo.x[(", [TableId("shop", "dbo", "x[(")]) != []


@pytest.mark.parametrize("type", SENT)
def test_what_the_command_writes_is_what_the_stream_reads(type):
    filter = "n > 1" if type == "execute-snapshot" else None
    data = signal_data(type, ["dbo.a", "dbo.b"], filter=filter, message="hello", kind="incremental", position="7")
    meaning = read(type, data)
    if type in ("rewind-changes", "skip-changes"):
        assert (meaning.kind, meaning.collections, meaning.position) == (type.split("-")[0], ("dbo.a", "dbo.b"), "7")
    if type == "execute-snapshot":
        assert meaning.collections == ("dbo.a", "dbo.b")
        assert meaning.filter_of(TableId("shop", "dbo", "b")) == "n > 1"
        assert meaning.filter_of(TableId("shop", "dbo", "c")) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("execute-snapshot",), "needs tables"),
        (("log",), "needs a message"),
        (("rewind-changes", ["dbo.a"]), "needs tables and a position"),
        (("snapshot",), "no signal 'snapshot'"),
    ],
)
def test_a_signal_that_nobody_could_follow_is_not_made(arguments, said):
    with pytest.raises(OptionError, match=said):
        signal_data(*arguments)


def write(folder, id):
    """The name of the file that the command leaves."""
    return write_file(folder, Signal(id, "log", '{"message": "hello"}')).name


def take(folder, taken):
    """What is taken after a look, through the offset's JSON, and the ids of the signals that were found."""
    taken, found = take_files(str(folder), taken, pytest.fail)
    return TakenFiles.from_json(taken.to_json()), [signal.id for signal in found]


def test_files_are_taken_in_the_order_in_which_they_were_written(tmp_path):
    folder = tmp_path / "signals"
    assert take(folder, TakenFiles()) == (TakenFiles(), [])
    written = [write(folder, f"s{n}") for n in range(3)]
    taken, found = take(folder, TakenFiles())
    assert found == ["s0", "s1", "s2"]
    written += [write(folder, f"s{n}") for n in range(3, 5)]
    assert sorted(written) == written
    taken, found = take(folder, taken)
    assert found == ["s3", "s4"]
    assert read_file(folder, written[0]) == Signal("s0", "log", '{"message": "hello"}')
    (folder / ".2026.json").write_text("being written")
    assert take(folder, taken) == (taken, [])


AHEAD, BEHIND = "99990101T000000.000000Z-00000000.json", "20010101T000000.000000Z-00000000.json"


@pytest.mark.parametrize("name", [AHEAD, BEHIND, "9999.json", "0.json", "zzz.json"])
@pytest.mark.parametrize("kept", [True, False], ids=["still there", "deleted"])
def test_no_name_of_a_file_keeps_another_from_being_read(tmp_path, name, kept):
    (tmp_path / name).write_text('{"id": "odd", "type": "log", "data": {"message": "hello"}}')
    taken, found = take(tmp_path, TakenFiles())
    assert found == ["odd"]
    if not kept:
        (tmp_path / name).unlink()
    write(tmp_path, "command")
    taken, found = take(tmp_path, taken)
    assert found == ["command"]
    for late in ("10.json", "2026.json", "zz.json"):
        (tmp_path / late).write_text(f'{{"id": "{late}", "type": "log"}}')
        taken, found = take(tmp_path, taken)
        assert found == [late]
    assert take(tmp_path, taken) == (taken, [])


def test_what_waits_together_is_read_in_the_order_of_writing_though_a_clock_ran_ahead(tmp_path):
    (tmp_path / AHEAD).write_text('{"id": "first", "type": "log"}')
    for id in ("second", "third"):
        write(tmp_path, id)
    assert take(tmp_path, TakenFiles())[1] == ["first", "second", "third"]


def test_what_an_offset_names_does_not_grow_with_the_files_that_the_command_left(tmp_path):
    for n in range(40):
        (tmp_path / f"20010101T000000.{n:06}Z-00000000.json").write_text('{"type": "log"}')
    taken, found = take(tmp_path, TakenFiles())
    assert len(found) == 40
    assert taken == TakenFiles("20010101T000000.000039Z-00000000.json", ())
    assert TakenFiles.from_json(taken.to_json()) == taken


@pytest.mark.parametrize("last", ["9999.json", "20260101T000000.000000Z-00000000.json"])
def test_an_offset_of_an_earlier_release_has_only_the_last_name(tmp_path, last):
    for name in ("1.json", last):
        (tmp_path / name).write_text(f'{{"id": "{name}", "type": "log"}}')
    taken, found = take(tmp_path, TakenFiles.from_json({"file": last}))
    assert found == []
    for id in ("mine", "another"):
        write(tmp_path, id)
        taken, found = take(tmp_path, taken)
        assert found == [id]


def test_a_file_that_is_not_read_because_of_its_name_is_told(tmp_path, caplog):
    (tmp_path / "notes.txt").write_text("not a signal")
    assert present_files(str(tmp_path)) == []
    assert any("'notes.txt'" in message and "doesn't end in .json" in message for message in caplog.messages)


def test_data_in_a_file_may_be_an_object_its_text_or_nothing(tmp_path):
    for name, data in (("a", ONE), ("b", json.dumps(ONE)), ("c", None)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"type": "execute-snapshot", "data": data}))
    assert [json.loads(read_file(tmp_path, f"{name}.json").data) for name in "ab"] == [ONE, ONE]
    assert read_file(tmp_path, "c.json") == Signal("c", "execute-snapshot", None)


@pytest.mark.parametrize("text", ["{", "[]", '{"id": "x"}', "\ufffd"])
def test_a_file_that_is_no_signal_is_named(tmp_path, text):
    (tmp_path / "1.json").write_text(text)
    with pytest.raises(FormatError, match=r"'1\.json'"):
        read_file(tmp_path, "1.json")


def test_a_folder_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "signals").write_text("a file")
    with pytest.raises(HeadraceError, match=r"Signal folder .* can't be written"):
        write_file(tmp_path / "signals", Signal("x", "log", None))


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("string", "string", "string"), None),
        (("int64", "string", "json", "date"), None),
        (("string", "string"), "fewer than three captured columns"),
        (("string", "int32", "string"), "Column 'c2' of the signal table 'dbo.s' holds no text"),
        (("string", "string", "bytes"), "Column 'c3' of the signal table 'dbo.s' holds no text"),
    ],
)
def test_a_signal_table_has_texts_where_signals_are_read(kinds, said):
    columns = [Column(f"c{n}", n, LogicalType(kind)) for n, kind in enumerate(kinds, 1)]
    if said is None:
        require_signal_columns("dbo.s", columns, "three")
        return
    with pytest.raises(CaptureError, match=said):
        require_signal_columns("dbo.s", columns, "three")
