"""Sinks of messages: order per key, the position beside each message, and batches that are seen whole or not at all."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import NewerRelease, OptionError, SinkError
from headrace.formats.base import MESSAGE_DDL
from headrace.formats.codec import MESSAGES
from headrace.sinks.base import BatchId
from headrace.sinks.files import FilesSink, lines
from headrace.sinks.kafka.sink import KafkaSink, in_order
from headrace.sinks.memory import MemorySink
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, pos, table
from headrace.testing.faults import InjectedFault
from headrace.wire.lines import lines as written_lines
from headrace_emulators.engine.ports import free_ports

Message = tuple[str, int | None, bytes | None, bytes | None, Any, str]


def message(
    n: int, key: str | None, value: bytes | None = b"{}", topic: str = "orders", headers: Any = None
) -> Message:
    return (topic, None, None if key is None else key.encode(), value, headers, pos(n))


def frame(spark: Any, messages: list[Message]) -> Any:
    return local_rows(spark, list(messages), MESSAGE_DDL).repartition(3, "position")


def files_sink(path: Path) -> FilesSink:
    return FilesSink.of({"path": str(path)})


def kafka_sink(**options: Any) -> KafkaSink:
    return KafkaSink.of(options)


def read_lines(path: Path) -> list[Any]:
    """As a user reads it: folder by folder, file by file, in name order."""
    return [
        json.loads(line)
        for folder in sorted(path.glob("batch=*"))
        for file in sorted(folder.glob("part-*"))
        for line in file.read_text().splitlines()
    ]


def test_files_lie_in_position_order_and_a_replay_is_seen_once(spark: Any, tmp_path: Path) -> None:
    sink = files_sink(tmp_path / "log")
    sink.check()
    assert not (tmp_path / "log").exists()
    first = frame(spark, [message(n, f"k{n % 7}", f'{{"n":{n}}}'.encode()) for n in range(40)])
    second = frame(spark, [message(n, "k", b"") for n in range(40, 45)])
    for number, rows in ((0, first), (1, second), (1, second), (0, first)):
        sink.write(rows, BatchId("p", "c", number))
        written = read_lines(tmp_path / "log")
    assert [line["position"] for line in written] == [pos(n) for n in range(45)]
    assert written[3] == {"topic": "orders", "key": "k3", "value": '{"n":3}', "headers": None, "position": pos(3)}
    assert (tmp_path / "log" / "batch=000000000001" / "_SUCCESS").exists()
    assert not [path for path in (tmp_path / "log").iterdir() if path.name.startswith("_writing")]


def test_files_keep_nulls_headers_and_bytes(spark: Any, tmp_path: Path) -> None:
    odd = [
        message(1, None, None),
        message(2, "k", b"\xff\x00", headers=[("h", b"v"), ("n", None)]),
    ]
    files_sink(tmp_path).write(frame(spark, odd), BatchId("p", "c", 0))
    tombstone, raw = read_lines(tmp_path)
    assert (tombstone["key"], tombstone["value"]) == (None, None)
    assert (raw["key_base64"], raw["value_base64"]) == ("aw==", "/wA=")
    assert raw["headers"] == [{"key": "h", "value": "v"}, {"key": "n", "value": None}]


def test_bytes_of_any_length_are_one_line_of_base64(spark: Any, tmp_path: Path) -> None:
    long = b"\xff" * 1000
    files_sink(tmp_path).write(frame(spark, [message(1, "k", long, headers=[("id", long)])]), BatchId("p", "c", 0))
    (raw,) = read_lines(tmp_path)
    assert [raw["value_base64"], raw["headers"][0]["value_base64"]] == [base64.b64encode(long).decode()] * 2


def test_files_keep_headers_of_any_bytes(spark: Any, tmp_path: Path) -> None:
    headers = [("id", b"\x00\xff"), ("n", None), ("t", b"text")]
    messages = [message(1, "k", headers=headers), message(2, "k", b"\xff", headers=headers)]
    files_sink(tmp_path).write(frame(spark, messages), BatchId("p", "c", 0))
    text, raw = read_lines(tmp_path)
    assert (text["key"], text["value"]) == ("k", "{}")
    assert (raw["key_base64"], raw["value_base64"]) == ("aw==", "/w==")
    expected = [("id", "AP8="), ("n", None), ("t", "dGV4dA==")]
    for line in (text, raw):
        assert [(h["key"], h["value_base64"]) for h in line["headers"]] == expected


def test_lines_are_the_same_whether_spark_or_a_source_writes_them(spark: Any) -> None:
    texts = ["", '"\\/', "\x00\x07\x1f\n\t\x7f", "\u2028 é サ 😀", '{"a": "\\u0001"}']
    odd: list[bytes | None] = [None, b"\xff\x00", b"\xed\xa0\x80", b"\xc0\x80", *map(str.encode, texts)]
    messages = [
        (topic, None, key, value, headers, pos(n))
        for n, (topic, key, value, headers) in enumerate(
            [
                *((text, None, b"{}", None) for text in [None, *texts]),
                *(("t", key, value, None) for key in odd for value in odd),
                *(("t", b"k", b"v", [("h", value), ("n", other)]) for value in odd for other in odd),
                ("t", b"k", b"v", []),
            ]
        )
    ]
    rows = local_rows(spark, messages, MESSAGE_DDL)
    names = ["topic", "partition", "key", "value", "headers", "position"]
    given = [dict(zip(names, one, strict=True)) for one in messages]
    for one in given:
        if one["headers"] is not None:
            one["headers"] = [{"key": key, "value": value} for key, value in one["headers"]]
    made = written_lines(pa.RecordBatch.from_pylist(given, MESSAGES)).to_pylist()
    assert [row.value for row in lines(rows).collect()] == made


def test_a_files_batch_that_failed_is_not_seen(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", "sink.files.before_commit=raise")
    sink = files_sink(tmp_path / "log")
    rows = frame(spark, [message(1, "k")])
    with pytest.raises(InjectedFault):
        sink.write(rows, BatchId("p", "c", 0))
    assert read_lines(tmp_path / "log") == []
    sink.write(rows, BatchId("p", "c", 0))
    assert len(read_lines(tmp_path / "log")) == 1


def test_a_files_folder_takes_no_other_batch_under_a_number_that_it_has(spark: Any, tmp_path: Path) -> None:
    sink, rows = files_sink(tmp_path), frame(spark, [message(1, "k")])
    for _ in range(2):
        sink.write(rows, BatchId("p", "c", 0, "0a" * 8))
    with pytest.raises(SinkError, match="Batch 0 of pipeline 'p' differs from the one"):
        sink.write(rows, BatchId("p", "c", 0, "0b" * 8))
    # What an earlier release wrote does not say which batch it is.
    sink.write(rows, BatchId("p", "c", 1))
    sink.write(rows, BatchId("p", "c", 1, "1a" * 8))


def test_a_files_folder_has_one_owner(spark: Any, tmp_path: Path) -> None:
    rows = frame(spark, [message(1, "k")])
    files_sink(tmp_path).write(rows, BatchId("p", "c", 0))
    with pytest.raises(SinkError, match="belongs to the pipeline and checkpoint 'p/c', not to 'p/d'"):
        files_sink(tmp_path).write(rows, BatchId("p", "d", 0))
    # What a later release says where its layout is not this one's.
    (tmp_path / "._headrace_owner.crc").unlink()
    (tmp_path / "_headrace_owner").write_text("p/c\nformat-version: 2")
    with pytest.raises(NewerRelease, match=r"has format version 2, and Headrace .* reads versions up to 1"):
        files_sink(tmp_path).write(rows, BatchId("p", "c", 1))


def test_memory_takes_a_batch_once(spark: Any) -> None:
    MemorySink.forget("here")
    sink = MemorySink.of({"name": "here"})
    rows = Batch(table()).add("d", table(), 2, None, {"id": "1"}).add("c", table(), 1, {"id": "1"}).rows(spark)
    for number in (0, 0, 1):
        sink.write(rows, BatchId("p", "c", number))
    batches = MemorySink.batches("here")
    assert [batch.number for batch in batches] == [0, 1]
    assert [row["op"] for row in batches[BatchId("p", "c", 0)]] == ["schema", "c", "d"]
    MemorySink.forget("here")
    assert MemorySink.batches("here") == {}


def test_messages_of_a_key_stay_together_in_order(spark: Any) -> None:
    rows = [message(n, f"k{n % 5}" if n % 3 else None, str(n).encode()) for n in range(60)]
    parts = in_order(frame(spark, rows)).rdd.glom().collect()
    home: dict[Any, int] = {}
    for number, part in enumerate(parts):
        last: dict[Any, int] = {}
        for row in part:
            key = None if row["key"] is None else bytes(row["key"])
            assert home.setdefault(key, number) == number
            assert last.get(key, -1) < int(row["value"])
            last[key] = int(row["value"])
            assert bytes(row["headers"][-1]["value"]).decode() == pos(int(row["value"]))


def test_messages_of_one_row_keep_their_order(spark: Any) -> None:
    rows = [message(1, "k", b"delete"), message(1, "k", None), message(1, "k", b"create")]
    ordered = in_order(local_rows(spark, rows, MESSAGE_DDL).coalesce(1)).collect()
    assert [None if r["value"] is None else bytes(r["value"]) for r in ordered] == [b"delete", None, b"create"]


@pytest.mark.parametrize(
    "name", ["bootstrap_servers", "bootstrapServers", "bootstrap.servers", "kafka.bootstrap.servers"]
)
def test_kafka_settings_pass_through_in_any_spelling(name: str) -> None:
    sink = kafka_sink(**{name: "a:1", "kafka.linger.ms": 5, "kafka.sasl.jaas.config": "hidden", "kafka.acks": "all"})
    assert sink.settings.bootstrap_servers == "a:1"
    assert sink.settings.kafka["kafka.linger.ms"] == "5"
    assert "hidden" not in repr(sink.settings)


def test_what_kafka_promises_can_not_be_switched_off() -> None:
    with pytest.raises(OptionError, match=r"'kafka\.acks' of sink 'kafka' can't be '1'"):
        kafka_sink(bootstrap_servers="a:1", **{"kafka.acks": "1"})
    with pytest.raises(OptionError, match="Option 'topic' belongs to a format, not to sink 'kafka'"):
        kafka_sink(bootstrap_servers="a:1", topic="x")


def test_a_broker_that_does_not_answer_is_said_at_once() -> None:
    (port,) = free_ports(1)
    with pytest.raises(SinkError, match=f"No Kafka broker answers at 127.0.0.1:{port}"):
        kafka_sink(bootstrap_servers=f"127.0.0.1:{port}").check()
    with pytest.raises(SinkError, match="'nowhere' is no broker address"):
        kafka_sink(bootstrap_servers="nowhere").check()


@pytest.mark.kafka
def test_kafka_gets_each_key_in_order_and_a_replay_is_byte_identical(spark: Any, bootstrap: str) -> None:
    sink = kafka_sink(bootstrap_servers=bootstrap)
    sink.check()
    rows = frame(spark, [message(n, f"k{n % 3}", str(n).encode(), headers=[("h", b"v")]) for n in range(30)])
    for _ in range(2):
        sink.write(rows, BatchId("p", "c", 0))
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "orders")
    got = source.option("includeHeaders", "true").load().orderBy("partition", "offset").collect()
    for key in (b"k0", b"k1", b"k2"):
        mine = [
            (bytes(r["value"]), [(h["key"], bytes(h["value"])) for h in r["headers"]]) for r in got if r["key"] == key
        ]
        once = [
            (str(n).encode(), [("h", b"v"), ("headrace.position", pos(n).encode())])
            for n in range(30)
            if f"k{n % 3}".encode() == key
        ]
        assert mine == once + once
