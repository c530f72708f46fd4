"""`headrace decode`: messages in, change rows out, and nothing left out in between."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from headrace.changes.row import spark_schema
from headrace.cli.app import app
from headrace.cli.message_input import Input, InputMessage, found_input, read_input
from headrace.cli.row_output import Row, collect_rows, counts_text, json_line, shown, text_lines, time_text
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
    ],
}
SCHEMA = {
    "type": "struct",
    "name": "shop.public.orders.Envelope",
    "optional": False,
    "fields": [
        {**ROW, "field": "before"},
        {**ROW, "field": "after"},
        {"type": "struct", "fields": [], "optional": False, "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
    ],
}
KEY_SCHEMA = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "optional": False}
KEY = json.dumps({"schema": KEY_SCHEMA, "payload": {"id": 7}}, separators=(",", ":"))


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "orders", "ts_ms": 1700000000123}
    payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}
    return json.dumps({"schema": SCHEMA, "payload": payload}, separators=(",", ":"), ensure_ascii=False)


CREATE = event("c", None, {"id": 7, "name": None})
UPDATE = event("u", {"id": 7, "name": None}, {"id": 7, "name": "中\n"})


def decode(data: str | bytes, *arguments: str) -> Result:
    given = data if isinstance(data, bytes) else data.encode()
    return CliRunner().invoke(app, ["decode", *arguments], input=given)


def record(value: Any, **more: Any) -> str:
    return json.dumps({"value": value, "topic": "shop.public.orders", **more})


def test_rows_for_a_person() -> None:
    done = decode(f"{CREATE}\n\n{UPDATE}\nnot json\n", "--format", "debezium_json")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "line 1: schema shop.public.orders",
        "  schema: id int32 not null, name string",
    ]
    assert lines[2:6] == [
        "line 1: create shop.public.orders; 2023-11-14T22:13:20.123000Z",
        "  id    7",
        "  name  NULL",
        "  source: connector=postgresql",
    ]
    assert lines[6:9] == [
        "line 3: update shop.public.orders; 2023-11-14T22:13:20.123000Z",
        "  id    7",
        '  name  NULL -> "\\u4e2d\\n"',
    ]
    assert lines[10].startswith("line 4: error: ")
    assert lines[11] == "  value: not json"
    told = done.stderr.splitlines()
    assert told[0] == "3 messages: 1 schema, 1 create, 1 update, 1 error."
    assert told[1].startswith("  1 x ")


CANAL = {
    "database": "shop",
    "table": "orders",
    "es": 1_714_564_801_000,
    "id": 5,
    "isDdl": False,
    "mysqlType": {"id": "bigint(20)", "amount": "decimal(10,2)", "state": "enum('new','paid')"},
    "pkNames": ["id"],
    "sql": "",
}


def canal(type: str, data: list[dict[str, Any]] | None, old: list[dict[str, Any]] | None = None) -> str:
    return json.dumps({**CANAL, "type": type, "data": data, "old": old})


def test_canal_from_the_standard_input() -> None:
    messages = [
        canal("UPDATE", [{"id": "1", "amount": "12.50", "state": "2"}], [{"state": "1"}]),
        canal("GTID", None),
        canal("DELETE", [{"id": "1", "amount": None}, {"id": "2", "amount": "0.10"}]),
        canal("WHAT", []),
    ]
    done = decode("\n".join(messages), "--format", "canal_json")
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if not line.startswith("  source:")]
    assert lines[:8] == [
        "line 1: schema shop.orders",
        "  schema: id int64 not null, amount decimal(10,2), state string; key id",
        "line 1: update shop.orders; key id=1; 2024-05-01T12:00:01.000000Z",
        "  id      1",
        "  amount  12.50",
        "  state   new -> paid",
        "  changed: state",
        "line 2: not an event",
    ]
    assert lines[8:14] == [
        "line 3: delete shop.orders; key id=1; 2024-05-01T12:00:01.000000Z",
        "  id      1",
        "  amount  NULL",
        "line 3: delete shop.orders; key id=2; 2024-05-01T12:00:01.000000Z",
        "  id      2",
        "  amount  0.10",
    ]
    assert lines[14].startswith("line 4: error: ")
    assert done.stderr.splitlines()[0] == "4 messages: 1 schema, 1 update, 2 delete, 1 error; 1 is not an event."


@pytest.mark.parametrize("mode", ["row", "drop", "fail"])
def test_formats_on_arrow_are_decoded_without_spark(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_session(*_: Any) -> None:
        raise AssertionError("a session was asked for")

    monkeypatch.setattr("headrace.cli.decode._session", no_session)
    messages = [canal("INSERT", [{"id": "1", "amount": "12.50", "state": "2"}]), canal("GTID", None), "{} {}"]
    done = decode("\n".join(messages), "-f", "canal_json", "--json", "-o", f"on_error={mode}")
    ops = [json.loads(line)["op"] for line in done.stdout.splitlines()]
    assert (done.exit_code, ops) == {
        "row": (1, ["schema", "c", "error"]),
        "drop": (0, ["schema", "c"]),
        "fail": (done.exit_code, []),
    }[mode]
    if mode == "fail":
        assert "A message can't be read (topic messages partition 0 offset" in done.stderr


@pytest.mark.parametrize(
    "message",
    [
        {"database": "d", "table": "t", "type": "insert", "ts": 1477053217, "data": {"id": 1}},
        {"table": "OWN.T", "op_type": "I", "op_ts": "2020-05-13 17:32:10.9", "after": {"id": 1}},
        {"meta": {"op": "ins", "table": "OWN.T"}, "data": {"id": "1"}},
        {"data": {"id": "1"}, "beforeData": None, "headers": {"operation": "INSERT", "changeSequence": "5"}},
    ],
)
def test_so_are_formats_that_say_no_types(message: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("headrace.cli.decode._session")
    done = decode(json.dumps(message), "--json")
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (done.exit_code, row["op"], row["after"]) == (0, "c", {"id": "1"})


def test_a_given_schema_and_an_option_of_the_format(spark: SparkSession) -> None:
    message = canal("UPDATE", [{"id": "1", "amount": "1.50"}], [{"id": "1", "amount": "2.5"}])
    options = ("-o", "dts_legacy_old=true", "-o", "schema=id bigint, amount decimal(10,2), note string")
    done = decode(message, "-f", "canal_json", "--json", *options)
    assert done.exit_code == 0
    (found,) = [row for row in map(json.loads, done.stdout.splitlines()) if row["op"] == "u"]
    assert (found["before"]["amount"], found["after"]["amount"]) == ("1.50", "2.50")
    assert "note" not in found["after"]


def test_records_keep_their_places_and_headers() -> None:
    header = [{"key": "trace", "value": "a"}, {"key": "raw", "base64": "/wA="}]
    lines = [
        record(CREATE, key=KEY, partition=2, offset=41, timestamp=1_700_000_000_500, headers=header),
        record(None, key=KEY, partition=2, offset=42),
    ]
    done = decode("\n".join(lines), "--format", "debezium_json", "--input", "records", "--json")
    assert done.exit_code == 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["line"], row["op"]) for row in rows] == [(1, "schema"), (1, "c"), (2, "tombstone")]
    assert rows[1]["table"] == {"database": "shop", "schema": "public", "name": "orders"}
    assert (rows[1]["key"], rows[1]["before"], rows[1]["after"]) == ({"id": "7"}, None, {"id": "7", "name": None})
    assert rows[1]["event_time"] == "2023-11-14T22:13:20.123000Z"
    assert rows[1]["capture_time"] == "2023-11-14T22:13:20.500000Z"
    message = rows[1]["message"]
    assert (message["topic"], message["partition"], message["offset"]) == ("shop.public.orders", 2, 41)
    assert message["headers"] == [{"key": "trace", "value": "a"}, {"key": "raw", "value": {"base64": "/wA="}}]
    assert rows[2]["key"] == {"id": "7"}


def test_what_was_printed_of_an_error_can_be_given_again() -> None:
    broken = base64.b64encode(b'{"schema":\xff').decode()
    line = record({"base64": broken}, offset=3)
    first = decode(line, "--format", "debezium_json", "--input", "records", "--json")
    assert first.exit_code == 1
    message = json.loads(first.stdout)["message"]
    assert message["value"] == {"base64": broken}
    again = decode(json.dumps(message), "--format", "debezium_json", "--input", "records", "--json")
    assert (again.exit_code, json.loads(again.stdout)["message"]) == (1, message)


def test_lines_that_are_no_message_are_error_rows_in_their_place() -> None:
    lines = [record(CREATE), '{"key": "x"}', "[]", record(1), record(UPDATE)]
    done = decode("\n".join(lines), "-f", "debezium_json", "--input", "records", "--json")
    assert done.exit_code == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["line"], row["op"]) for row in rows] == [
        (1, "schema"),
        (1, "c"),
        (2, "error"),
        (3, "error"),
        (4, "error"),
        (5, "u"),
    ]
    assert [row["error"] for row in rows[2:5]] == [
        "Line 2 is not a message: it has no `value`.",
        "Line 3 is not a message: it is not a JSON object.",
        'Line 4 is not a message: its `value` is neither text, nor null, nor {"base64": "..."}.',
    ]
    assert rows[2]["message"]["value"] == '{"key": "x"}'


def test_the_format_is_found_and_said() -> None:
    done = decode(f"{CREATE}\n{UPDATE}\n", "--json")
    assert done.exit_code == 0
    assert [json.loads(line)["op"] for line in done.stdout.splitlines()] == ["schema", "c", "u"]
    assert done.stderr.splitlines() == [
        "Format: debezium_json (2 messages: a schema named `*.Envelope`).",
        "2 messages: 1 schema, 1 create, 1 update.",
    ]


def test_one_binary_message_and_base64_lines(tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(CREATE.encode())
    whole = decode("", str(file), "--input", "binary", "--json")
    assert (whole.exit_code, json.loads(whole.stdout.splitlines()[-1])["op"]) == (0, "c")
    line = base64.b64encode(UPDATE.encode()).decode()
    coded = decode(f"{line}\n%%\n", "--input", "base64", "--json", "--format", "debezium_json")
    assert coded.exit_code == 1
    assert json.loads(coded.stdout.splitlines()[1])["after"] == {"id": "7", "name": "中\n"}
    assert json.loads(coded.stdout.splitlines()[2])["error"] == "Line 2 is not a message: it is not base64."


def test_options_reach_the_format(tmp_path: Path) -> None:
    wrong = decode(CREATE, "-f", "debezium_json", "-o", "unavailable_value_placeholdr=x")
    assert wrong.exit_code == 2
    assert "Did you mean 'unavailable_value_placeholder'?" in wrong.stderr
    assert decode(CREATE, "-f", "debezium_json", "-o", "unwrapped").stderr.startswith(
        "Option 'unwrapped' has no value. Write -o name=value."
    )
    assert decode(CREATE, "-f", "debezium_json", "-o", "a=1", "-o", "a=2").exit_code == 2
    assert "of option 'schema' as text" in decode(CREATE, "-f", "debezium_json", "-o", "schema=@/nowhere").stderr
    text = event("c", None, {"id": 7, "name": "gone"})
    (tmp_path / "word").write_text("gone")
    found = decode(text, "-f", "debezium_json", "--json", "-o", f"unavailable_value_placeholder=@{tmp_path}/word")
    assert json.loads(found.stdout.splitlines()[-1])["after"] == {"id": "7"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "canal_jsn"), "Unknown format 'canal_jsn'."),
        (("/nowhere/at/all",), "Can't read the file '/nowhere/at/all': No such file or directory."),
        ((), "None of 1 message has the marks of a known format."),
        (("--input", "lined"), "Invalid value for '--input'"),
    ],
)
def test_bad_usage_is_2(arguments: tuple[str, ...], said: str) -> None:
    done = decode("something", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_on_error_fail_is_the_formats_own_sentence() -> None:
    done = decode("not json", "-f", "debezium_json", "-o", "on_error=fail")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("A message can't be read (topic messages partition 0 offset 0): ")


def test_nothing_in_nothing_out() -> None:
    done = decode("\n", "--format", "debezium_json")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "0 messages: no rows.\n")


@pytest.mark.system
@pytest.mark.parametrize(
    ("options", "counts", "ops"),
    [
        pytest.param((), "1 schema, 1 create", ["schema", "c"], id="without Spark"),
        pytest.param(("-o", "schema=id int, name string"), "1 create", ["c"], id="with Spark", marks=pytest.mark.jvm),
    ],
)
def test_spark_says_nothing_of_its_own(options: tuple[str, ...], counts: str, ops: list[str]) -> None:
    """The program as a user starts it: Spark's own words stand neither before the rows nor among them."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "decode", "--format", "debezium_json", "--json", *options],
        input=CREATE,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, f"1 message: {counts}.\n")
    assert [json.loads(line)["op"] for line in done.stdout.splitlines()] == ops


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    """`headrace decode ... | head -n 1`, with more rows than a pipe holds."""
    lines = "\n".join([json.dumps({"no": "record"}), *["x" * 1000] * 300])
    running = subprocess.Popen(
        [sys.executable, "-m", "headrace", "decode", "--format", "debezium_json", "--input", "records", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdin.write(lines.encode())
    running.stdin.close()
    assert json.loads(running.stdout.readline())["error"] == "Line 1 is not a message: it has no `value`."
    running.stdout.close()
    told = running.stderr.read().decode()
    running.stderr.close()
    assert (running.wait(PATIENCE), told.splitlines()[0]) == (1, "301 messages: 301 error.")
    assert "Traceback" not in told


# --- the spellings of input -----------------------------------------------------------------------------------------


def one(line: str, kind: Input = Input.RECORDS) -> InputMessage:
    messages, unread = read_input(line.encode(), kind, "t")
    assert unread == []
    return messages[0]


def test_the_spellings_of_records() -> None:
    kcat = (
        '{"topic":"a","partition":1,"offset":5,"tstype":"create","ts":12,"key":null,"payload":"x","headers":["h","v"]}'
    )
    assert one(kcat) == InputMessage(1, b"x", None, (("h", b"v"),), "a", 1, 5, 12_000)
    ours = '{"topic":"a","key_base64":"/w==","value_base64":"AA==","headers":null,"position":"1"}'
    assert one(ours) == InputMessage(1, b"\x00", b"\xff", None, "a", 0, 0, None)
    mapped = '{"value":null,"headers":{"h":null,"i":{"base64":"AA=="}},"timestamp":"2020-01-01T00:00:00.000001+01:00"}'
    assert one(mapped) == InputMessage(1, None, None, (("h", None), ("i", b"\x00")), "t", 0, 0, 1_577_833_200_000_001)


FILES_SINK = (
    '{"topic":"shop.dbo.t","key":"{}","value":"{}","headers":[{"key":"a","value":"b"}],"position":"0001"}',
    '{"topic":"shop.dbo.t","key_base64":null,"value_base64":"AA==","headers":null,"position":"0001"}',
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((line, Input.RECORDS) for line in FILES_SINK),
        (f"\n{FILES_SINK[0]}\nbroken off {{", Input.RECORDS),
        (record("{}", partition=0, offset=1, timestamp=1), Input.RECORDS),
        ('{"topic":"t","partition":0,"offset":1,"tstype":"create","ts":1,"key":null,"payload":"x"}', Input.RECORDS),
        (CREATE, Input.LINES),
        ('{"schema":{},"payload":{"op":"c"}}', Input.LINES),
        ('{"key":"k","value":"v"}', Input.LINES),
        ('{"topic":"t","value":"v","price":1}', Input.LINES),
        ("no JSON", Input.LINES),
        ("", Input.LINES),
        ("[" * 100_000, Input.LINES),
    ],
)
def test_records_are_known_by_what_they_name(text: str, expected: Input) -> None:
    assert found_input(text.encode()) is expected


def test_offsets_tell_messages_apart() -> None:
    def offsets(*records: str) -> list[int | None]:
        return [m.offset for m in read_input("\n".join(records).encode(), Input.RECORDS, "t")[0]]

    assert offsets('{"value":"a","offset":9}', '{"value":"b","offset":8}') == [9, 8]
    assert offsets('{"value":"a","offset":9}', '{"value":"b","offset":9,"partition":1}') == [9, 9]
    assert offsets('{"value":"a","offset":9}', '{"value":"b","offset":9}') == [0, 1]
    assert offsets('{"value":"a","offset":9}', '{"value":"b"}') == [0, 1]


@pytest.mark.parametrize(
    "line",
    [
        '{"value":"\\ud800"}',
        '{"value":"a","topic":"\\udfff"}',
        '{"value":"a","topic":1}',
        '{"value":"a","offset":-1}',
        '{"value":"a","offset":9223372036854775808}',
        '{"value":"a","partition":2147483648}',
        '{"value":"a","partition":true}',
        '{"value":"a","timestamp":"yesterday"}',
        '{"value":"a","timestamp":1e400}',
        '{"value":"a","headers":["odd"]}',
        '{"value":"a","headers":[1,2]}',
        '{"value":"a","headers":"h"}',
        '{"value":{"base64":"_"}}',
        '{"value":{"base64":1}}',
        '{"value":' + "[" * 100_000,
    ],
    ids=lambda line: line[:40],
)
def test_a_bad_record_is_told_and_does_not_stop_the_rest(line: str) -> None:
    messages, unread = read_input(f'{line}\n{{"value":"b"}}'.encode(), Input.RECORDS, "t")
    assert [m.value for m in messages] == [b"b"]
    assert unread[0].line == 1
    assert unread[0].text == line.encode()
    assert unread[0].why.startswith("Line 1 is not a message: ")


def test_lines_end_where_they_end() -> None:
    data = b"\xef\xbb\xbf{}\r\n\n\x0c\n a\xe2\x80\xa8b \n\xff"
    messages, unread = read_input(data, Input.LINES, "t")
    assert [(m.line, m.value) for m in messages] == [(1, b"{}"), (4, b" a\xe2\x80\xa8b "), (5, b"\xff")]
    assert unread == []


# --- how values are shown -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "NULL"),
        ("NULL", '"NULL"'),
        ("", '""'),
        (" a", '" a"'),
        ("a -> b", '"a -> b"'),
        ("(not sent)", '"(not sent)"'),
        ("中文", "中文"),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("a\u202eb", '"a\\u202eb"'),
        ("x" * 201, "x" * 200 + "... (201 characters)"),
    ],
)
def test_a_value_is_never_taken_for_another(text: str | None, expected: str) -> None:
    assert shown(text) == expected


def row(**fields: Any) -> Row:
    from headrace.changes import arrow_schema

    return {**dict.fromkeys(arrow_schema().names), **fields}


def test_absent_null_and_value_look_different() -> None:
    update = row(op="u", before={"a": "1", "b": None, "d": "x"}, after={"a": "2", "b": None, "c": None})
    assert list(text_lines(update, 3)) == [
        "line 3: update",
        "  a  1 -> 2",
        "  b  NULL",
        "  c  (not sent) -> NULL",
        "  d  x -> (not sent)",
    ]
    assert list(text_lines(row(op="u", changed=[]), None)) == ["update", "  changed: nothing"]


def test_facts_of_a_row() -> None:
    change = row(
        op="d",
        table={"database": "d", "schema": None, "name": "t"},
        key={"id": "1", "k": None},
        before={"id": "1"},
        changed=["id"],
        snapshot="last",
        transaction={"id": "9", "total_order": 1, "data_collection_order": 1},
        source={"ddl": "drop table t"},
    )
    assert list(text_lines(change, None)) == [
        "delete d.t; key id=1, k=NULL; snapshot last; transaction 9",
        "  id  1",
        "  changed: id",
        "  source: ddl=drop table t",
    ]
    assert json.loads(json_line(change, None))["transaction"]["id"] == "9"


def test_typed_images_are_shown_as_text_without_what_was_not_sent(spark: SparkSession) -> None:
    image = (
        "named_struct('n', 12.50bd, 'b', x'ff00', 'at', timestamp_micros(-1), "
        "'local', timestamp_ntz'0001-01-01 00:00', 'none', cast(null as string), "
        "'kept', cast(null as string), 'far', date'9999-12-31')"
    )
    columns = {"op": "'c'", "after": image, "after_absent": "array('none')"}
    kinds = {field.name: field.dataType.simpleString() for field in spark_schema()}
    (found,) = collect_rows(
        spark.range(1).selectExpr(
            *(f"{columns[n]} as {n}" if n in columns else f"cast(null as {kind}) as {n}" for n, kind in kinds.items())
        )
    )
    assert found["after"] == {
        "n": "12.50",
        "b": "/wA=",
        "at": "1969-12-31T23:59:59.999999Z",
        "local": "0001-01-01 00:00:00.000000",
        "kept": None,
        "far": "9999-12-31",
    }


def test_times_of_any_year() -> None:
    assert time_text(None) is None
    assert time_text(0) == "1970-01-01T00:00:00.000000Z"
    assert time_text(2**62) == "148108-07-06T14:00:27.387904Z"


def test_counts() -> None:
    assert counts_text(["c", "c", "error"], 4, 1) == "4 messages: 2 create, 1 error; 1 is not an event."
    assert counts_text([], 2, 2) == "2 messages: no rows; 2 are not events."
