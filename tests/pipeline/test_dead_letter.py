"""Messages that can't be read: counted, kept whole with the reason, and written inside the batch like all else."""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.changes.row import spark_schema
from headrace.errors import FormatError, OptionError, SinkError
from headrace.formats.base import Format
from headrace.formats.codec import KAFKA_COLUMNS, kafka_columns
from headrace.observe.messages import MessageCounts
from headrace.observe.progress import ProgressBoard
from headrace.pipeline import load_pipeline
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, MessageInput
from headrace.pipeline.dead_letter import DeadLetters
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import read_model
from headrace.pipeline.target import Target
from headrace.sinks.base import Sink
from headrace.sinks.files import FilesSink
from headrace.sinks.kafka.sink import KafkaSink
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.memory import MemorySink
from headrace.spark.local_rows import local_rows
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_DDL = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
AT = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)


class Words(Format):
    """A message is `+ <key>`; `#` is no event; everything else can't be read."""

    name = "words"

    def decode(self, messages: DataFrame) -> DataFrame:
        text = "cast(value as string)"
        problem = (
            f"case when value is null then 'It is null.' when {text} = '#' or {text} like '+ %' then null "
            f"else concat('It begins with ', substr({text}, 1, 1), '.') end"
        )
        kept = ("key", "value")
        fields = (f"'{n}', {f'if(problem is null, null, {n})' if n in kept else n}" for n in KAFKA_COLUMNS)
        columns = {
            "op": f"if(problem is null, if({text} = '#', null, 'c'), 'error')",
            "table": "if(problem is null, named_struct('database', '', 'schema', '', 'name', topic), null)",
            "after": f"if(problem is null, map('id', substr({text}, 3)), null)",
            "position": "concat(lpad(offset, 20, '0'), '/1/')",
            "capture_time": "timestamp",
            "message": f"named_struct({', '.join(fields)})",
            "error": "problem",
        }
        rows = kafka_columns(messages).selectExpr("*", f"{problem} as problem")
        made = ((field, columns.get(field.name, "null")) for field in spark_schema())
        return rows.selectExpr(*(f"cast({sql} as {f.dataType.simpleString()}) as {f.name}" for f, sql in made))


def options(kind: type[Sink], **given: Any) -> Any:
    return kind.parse(given)


def topics(*names: str, pattern: str = "", on_error: str = "dead_letter", servers: str = "k:9092") -> KafkaTopics:
    named: dict[str, Any] = {"topics.pattern": pattern} if pattern else {"topics": list(names)}
    given = {"bootstrap.servers": servers, **named}
    settings = KafkaTopics.parse(given)
    return KafkaTopics(settings, {}, Words.of({}), on_error)


def memory(name: str) -> Target:
    MemorySink.forget(name)
    return Target("memory", MemorySink(options(MemorySink, name=name)), None, "", "sink 1 (memory)")


class Run:
    """Batches of messages through a writer, without Kafka."""

    def __init__(self, spark: SparkSession, on_error: str, letters: DeadLetters | None = None) -> None:
        self.spark = spark
        self.board = ProgressBoard()
        self.kept: dict[int, MessageCounts] = {}
        self.targets = [memory("dead-letter-test")]
        self.writer = BatchWriter(
            "words",
            MessageInput(decode=Words.of({}).decode, on_error=on_error, dead_letters=letters),
            Delivery(self.targets, self.board, keep=self.kept.__setitem__),
        )
        self.writer.begin("checkpoint")

    def batch(self, *values: bytes | None, number: int = 0, topic: str = "orders", headers: Any = None) -> None:
        rows = [(topic, 3, 100 + n, AT, b"k\xff", value, headers) for n, value in enumerate(values)]
        self.writer(local_rows(self.spark, rows, KAFKA_DDL), number)

    @property
    def rows(self) -> list[tuple[str, str | None]]:
        batches = MemorySink.batches("dead-letter-test").values()
        return [(row["op"], (row["after"] or {}).get("id")) for rows in batches for row in rows]


def letters(sink: Sink, name: str, source: KafkaTopics | None = None) -> DeadLetters:
    return DeadLetters(sink.name, sink, source or topics("orders"), name)


# --- what becomes of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_error", "rows"),
    [("row", [("c", "1"), ("error", None), ("error", None)]), ("drop", [("c", "1")]), ("dead_letter", [("c", "1")])],
)
def test_sinks_and_counts(
    spark: SparkSession, tmp_path: Path, on_error: str, rows: list[tuple[str, str | None]]
) -> None:
    sink = letters(FilesSink(options(FilesSink, path=str(tmp_path / "dead"))), "${topic}")
    run = Run(spark, on_error, sink if on_error == "dead_letter" else None)
    run.batch(b"+ 1", b"?", b"#", None)
    assert run.rows == rows
    letters_kept, left_out = {"row": (0, 0), "drop": (0, 2), "dead_letter": (2, 0)}[on_error]
    counts = MessageCounts({"It begins with ?.": 1, "It is null.": 1}, 1, letters_kept, left_out)
    progress = run.board.progress(None, True)
    assert (progress.messages, run.kept) == (counts, {0: counts})
    assert {state.table: state.rows for state in progress.tables} == {"orders": {"c": 1}, "": {"error": 2}}
    assert (tmp_path / "dead").exists() is (on_error == "dead_letter")


def test_fail_stops_the_batch_before_any_sink_and_names_the_message(spark: SparkSession) -> None:
    run = Run(spark, "fail")
    run.batch(b"+ 1", b"#")
    with pytest.raises(FormatError) as caught:
        run.batch(b"+ 2", b"?", b"!", number=1)
    assert str(caught.value).startswith(
        "A message can't be read (topic orders, partition 3, offset 101): It begins with ?. Nothing of its batch "
    )
    assert run.rows == [("c", "1")]


def test_a_batch_without_changes_writes_nothing_but_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, "dead_letter", letters(FilesSink(options(FilesSink, path=str(tmp_path / "dead"))), "${topic}"))
    run.batch(b"#")
    assert (MemorySink.batches("dead-letter-test"), (tmp_path / "dead").exists()) == ({}, False)
    run.batch(b"?", number=1)
    assert MemorySink.batches("dead-letter-test") == {}
    assert [folder.name for folder in sorted((tmp_path / "dead").glob("batch=*"))] == ["batch=000000000001"]


def test_more_reasons_than_are_told_apart(spark: SparkSession) -> None:
    run = Run(spark, "drop")
    run.batch(*(chr(0x100 + n).encode() for n in range(70)), b"!", b"!")
    errors = run.kept[0].errors
    assert len(errors) == 51
    assert (errors["It begins with !."], errors["other reasons"], sum(errors.values())) == (2, 21, 72)


# --- where they are kept --------------------------------------------------------------------------------------------


def test_in_files_with_all_that_came(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, "dead_letter", letters(FilesSink(options(FilesSink, path=str(tmp_path))), "dead.${topic}.x"))
    for _ in range(2):
        run.batch(b"+ 1", b"?\x00\xff", None, headers=[("trace", b"\xfe"), ("none", None)])
    lines = [json.loads(line) for file in sorted(tmp_path.rglob("part-*")) for line in file.read_text().splitlines()]
    assert len(lines) == 2
    first = lines[0]
    assert (first["topic"], first["key_base64"], first["value_base64"]) == ("dead.orders.x", "a/8=", "PwD/")
    headers = [(h["key"], h["value_base64"] and base64.b64decode(h["value_base64"])) for h in first["headers"]]
    assert headers == [
        ("trace", b"\xfe"),
        ("none", None),
        ("headrace.error.reason", b"It begins with ?."),
        ("headrace.error.topic", b"orders"),
        ("headrace.error.partition", b"3"),
        ("headrace.error.offset", b"101"),
        ("headrace.error.timestamp", b"1714564800123"),
        ("headrace.error.pipeline", b"words"),
    ]
    assert lines[1]["value_base64"] is None


@pytest.mark.system
def test_in_a_delta_table_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(options(DeltaSink, path=str(tmp_path)))
    run = Run(spark, "dead_letter", letters(sink, "ops.letters"))
    run.batch(b"?\xff", None, headers=[("h", b"\xff"), ("n", None)])
    run.batch(b"?\xff", None, headers=[("h", b"\xff"), ("n", None)])
    run.batch(b"+ 1", number=1)
    run.batch(b"!", number=2)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = spark.read.format("delta").load(str(tmp_path / "ops" / "letters")).orderBy("offset", "reason").collect()
    assert [(row["offset"], row["value"], row["reason"]) for row in found] == [
        (100, b"!", "It begins with !."),
        (100, b"?\xff", "It begins with ?."),
        (101, None, "It is null."),
    ]
    one = found[1].asDict()
    assert (one["topic"], one["partition"], bytes(one["key"])) == ("orders", 3, b"k\xff")
    assert one["timestamp"].astimezone(dt.UTC) == AT
    assert json.loads(one["headers"]) == [{"key": "h", "value": "/w=="}, {"key": "n", "value": None}]


def test_messages_that_would_come_back_are_refused(spark: SparkSession) -> None:
    sink = KafkaSink(options(KafkaSink, **{"bootstrap.servers": "other:1, K:9092"}))
    run = Run(spark, "dead_letter", letters(sink, "${topic}.dead", topics(pattern="shop[.].*")))
    with pytest.raises(SinkError, match=r"topic 'shop.a' would go to 'shop.a.dead', which this pipeline reads"):
        run.batch(b"?", topic="shop.a")
    elsewhere = KafkaSink(options(KafkaSink, **{"bootstrap.servers": "elsewhere:9092"}))
    assert not letters(elsewhere, "${topic}.dead", topics(pattern="shop[.].*")).reads_itself("shop.a")


# --- the pipeline file ----------------------------------------------------------------------------------------------

SOURCE = {"type": "kafka", "bootstrap.servers": "k:9092", "topics": ["orders"], "format": {"type": "lines"}}
LETTERS = {"on_error": "dead_letter", "type": "lines"}


def file(folder: Path, source: dict[str, Any], **sections: Any) -> Path:
    path = folder / "p.yaml"
    text = {
        "source": {**SOURCE, **source},
        "sink": {"type": "list_changes", "path": "out"},
        "pipeline": {"name": "p", "checkpoint": "state"},
        **sections,
    }
    path.write_text(json.dumps(text, indent=1))
    return path


def test_a_section_in_the_file(tmp_path: Path) -> None:
    section = {"type": "kafka", "bootstrap.servers": "k:9092"}
    model = read_model(file(tmp_path, {"format": {"type": "lines", "onError": "dead_letter"}}, dead_letter=section))
    assert model.dead_letters is not None
    assert model.dead_letters.topic_of("orders") == "orders.dead_letter"
    assert isinstance(model.source, KafkaTopics)
    assert model.source.on_error == "dead_letter"
    in_files = read_model(file(tmp_path, {"format": LETTERS}, dead_letter={"type": "files", "path": "./d"}))
    assert in_files.dead_letters is not None
    assert in_files.dead_letters.sink.settings.path == str(tmp_path / "d")
    delta = file(tmp_path, {"format": LETTERS}, dead_letter={"type": "delta", "path": "d", "table": "ops.dead"})
    loaded = load_pipeline(delta)
    assert any("delta-spark" in jar for jar in loaded.jars)
    assert read_model(file(tmp_path, {})).dead_letters is None


FILES = {"type": "files", "path": "d"}


@pytest.mark.parametrize(
    ("sections", "said", "expected"),
    [
        # Tables and formats leave unreadable messages out, so nothing has them.
        ({}, {}, "fail"),
        ({"sink": {"type": "delta", "path": "lake"}}, {}, "fail"),
        ({"sink": {"type": "files", "path": "out", "format": {"type": "lines"}}}, {}, "fail"),
        ({"dead_letter": FILES}, {}, "dead_letter"),
        ({"sink": None, "sinks": [{"type": "delta", "path": "lake"}, {"type": "memory"}]}, {}, "row"),
        # What the user says counts.
        ({}, {"on_error": "row"}, "row"),
        ({}, {"on_error": "drop"}, "drop"),
    ],
)
def test_without_a_word_a_message_that_can_not_be_read_is_never_left_out(
    tmp_path: Path, sections: dict[str, Any], said: dict[str, str], expected: str
) -> None:
    source = read_model(file(tmp_path, {"format": {"type": "lines", **said}}, **sections)).source
    assert isinstance(source, KafkaTopics)
    assert source.on_error == expected


MISTAKES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"format": LETTERS}, {}, "With on_error: dead_letter a section 'dead_letter' is needed."),
    (
        {"format": {"type": "lines", "on_error": "drop"}},
        {"dead_letter": FILES},
        "Nothing goes into 'dead_letter'. Say on_error: dead_letter in the format of",
    ),
    ({"on_error": "drop"}, {}, "Source 'kafka' has no option 'on_error'. It belongs to the source's format"),
    ({"format": {"type": "lines", "on_error": "skip"}}, {}, "Option 'on_error' can't be 'skip'."),
    ({"format": LETTERS}, {"dead_letter": {"type": "filez"}}, "Unknown sink 'filez'. Did you mean 'files'?"),
    ({"format": LETTERS}, {"dead_letter": {**FILES, "pat": "x"}}, "Unknown option 'pat' for sink 'files'."),
    ({"format": LETTERS}, {"dead_letter": {**FILES, "table": "x"}}, "Dead letters in sink 'files' have no 'table'."),
    ({"format": LETTERS}, {"dead_letter": {**FILES, "format": {"type": "lines"}}}, "Dead letters keep the bytes"),
    (
        {"format": LETTERS, "topics": ["a", "a.dead"]},
        {"dead_letter": {"type": "kafka", "bootstrap.servers": "k:9092", "topic": "${topic}.dead"}},
        "Dead letters of topic 'a' would go to 'a.dead', which this pipeline reads.",
    ),
]


@pytest.mark.parametrize(("source", "sections", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes(tmp_path: Path, source: dict[str, Any], sections: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_model(file(tmp_path, source, **sections))
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'p.yaml'}, line ")


def test_a_database_has_no_dead_letters(tmp_path: Path) -> None:
    path = file(tmp_path, {}, dead_letter=FILES)
    text = json.loads(path.read_text()) | {"source": {"type": "folder", "hostname": "there"}}
    path.write_text(json.dumps(text))
    with pytest.raises(OptionError, match="Nothing goes into 'dead_letter'"):
        read_model(path)


def test_the_dead_letter_sink_is_checked_first(tmp_path: Path) -> None:
    with_sink = file(tmp_path, {"format": LETTERS}, dead_letter={"type": "list_changes", "path": "unwritable"})
    found = [sink.settings.path for _, sink in read_model(with_sink).sinks]
    assert found == [str(tmp_path / "out"), str(tmp_path / "unwritable")]


# --- a real broker --------------------------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.slow
def test_through_kafka_and_back(spark: SparkSession, tmp_path: Path, bootstrap: str) -> None:
    servers = {"bootstrap.servers": bootstrap}

    def send(*values: bytes | None) -> None:
        rows = [("orders", None if v == good else b"k\xff", v, [("trace", b"\xfe")]) for v in values]
        frame = local_rows(
            spark, rows, "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>"
        )
        frame.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", bootstrap).save()

    good = json.dumps(DEBEZIUM_CREATE).encode()
    send(good, b'{"no": "event"}', b"\x00\xff", good)
    path = file(
        tmp_path,
        {**servers, "format": {"type": "debezium_json", "on_error": "dead_letter"}},
        dead_letter={"type": "kafka", **servers},
    )
    running = load_pipeline(path).start(spark, once=True)
    assert running.wait(PATIENCE)
    assert running.progress().messages.unreadable == 2
    send(b"\x01")
    again = load_pipeline(path).start(spark, once=True)
    assert again.wait(PATIENCE)
    assert again.progress().messages.unreadable == 1

    status = load_pipeline(path).status()
    assert status.messages is not None
    assert (status.messages.unreadable, status.messages.dead_letters) == (3, 3)
    assert status.to_json()["messages"]["unreadable"] == 3

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    found = reader.option("subscribe", "orders.dead_letter").option("includeHeaders", "true").load().collect()
    found.sort(key=lambda row: (row["timestamp"], row["partition"], row["offset"]))
    assert {bytes(row["value"]) for row in found} == {b'{"no": "event"}', b"\x00\xff", b"\x01"}
    for row in found:
        headers = {h["key"]: bytes(h["value"]) for h in row["headers"]}
        assert bytes(row["key"]) == b"k\xff"
        assert (headers["trace"], headers["headrace.error.topic"]) == (b"\xfe", b"orders")
        assert headers["headrace.error.reason"]
    offsets = {int({h["key"]: h["value"] for h in row["headers"]}["headrace.error.offset"]) for row in found}
    assert offsets == {1, 2, 4}


ID = {"field": "id", "type": "int32", "optional": False}
DEBEZIUM_CREATE = {
    "schema": {
        "type": "struct",
        "name": "s.dbo.t.Envelope",
        "fields": [
            {"field": "before", "type": "struct", "fields": [ID], "optional": True},
            {"field": "after", "type": "struct", "fields": [ID], "optional": True},
            {"field": "source", "type": "struct", "fields": [], "optional": False},
            {"field": "op", "type": "string", "optional": False},
        ],
    },
    "payload": {
        "before": None,
        "after": {"id": 1},
        "source": {"connector": "sqlserver", "db": "s", "schema": "dbo", "table": "t", "ts_ms": 1},
        "op": "c",
        "ts_ms": 1,
    },
}
