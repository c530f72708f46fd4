"""Our sentence is found in what Spark makes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

import headrace
from headrace.apply import no_order
from headrace.changes.refusal import StopReason, refusal
from headrace.errors import CaptureError, ConnectError, FormatError, HeadraceError, SchemaError, SinkError
from headrace.pipeline.recover import find_in_text, recover
from headrace.sinks.base import BatchId
from headrace.sinks.kafka.sink import KafkaSink
from headrace.sinks.lake.refusals import explained as lake_explained
from headrace.sources.connection import LostConnection

PLANNER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] \
Failed when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "pyspark/sql/streaming/python_streaming_source_runner.py", line 205, in main
    latest_offset_func(reader, outfile)
  File "headrace/sources/sqlserver/connection.py", line 40, in connect
    raise ConnectError(
headrace.errors.ConnectError: The server 'db' refused the login of 'cdc'. Check user and password.
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: sales [id = 1, runId = 2]"""

CHAINED = """Traceback (most recent call last):
headrace.errors.ConnectError: The socket is closed. Try again.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
headrace.errors.CaptureError: Table 'dbo.a' is gone. Remove it.
	at org.apache.spark.sql.errors.QueryExecutionErrors$.x"""


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (PLANNER, ConnectError, "The server 'db' refused the login of 'cdc'. Check user and password."),
        (CHAINED, CaptureError, "Table 'dbo.a' is gone. Remove it."),
        ("'headrace.errors.SinkError: It is full. Make room.\\n'", SinkError, "It is full. Make room."),
    ],
)
def test_found_in_text(text: str, kind: type[HeadraceError], sentence: str) -> None:
    found = find_in_text(text)
    assert type(found) is kind
    assert str(found) == sentence


@pytest.mark.parametrize("text", ["", "java.lang.OutOfMemoryError", "headrace.errors.re: no error of ours"])
def test_nothing_of_ours(text: str) -> None:
    assert recover(RuntimeError(text)) is None


def test_a_special_case_of_an_error_comes_back_as_what_it_is_a_case_of() -> None:
    text = (
        f"{LostConnection.__module__}.LostConnection: The connection to server 'db' broke. Check the network.\n\tat x"
    )
    found = recover(RuntimeError(text))
    assert type(found) is ConnectError
    assert str(found) == "The connection to server 'db' broke. Check the network."


def test_an_error_in_the_chain_comes_first() -> None:
    ours = SinkError("a", remedy="b")
    try:
        try:
            raise ours
        except SinkError as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError as error:
        assert recover(error) is ours


def test_what_a_format_refuses_says_more_than_the_sink_that_met_it() -> None:
    met = SinkError("Batch 0 can't be written.", remedy="See --debug.")
    met.__cause__ = RuntimeError(
        "[USER_RAISED_EXCEPTION] headrace.errors.FormatError: No structure of dbo.a is there. Add it. SQLSTATE: P0001"
    )
    found = recover(met)
    assert (type(found), str(found)) == (FormatError, "No structure of dbo.a is there. Add it.")


class Refused(PySparkException):
    """What a query that was stopped with some text looks like to the code which started it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"[USER_RAISED_EXCEPTION] {text} SQLSTATE: P0001\n\tat org.apache.spark")


@pytest.mark.parametrize("kind", [FormatError, SchemaError, SinkError])
def test_a_refusal_comes_back_as_its_own_kind(kind: type[HeadraceError]) -> None:
    assert refusal("'x'", kind) == f"raise_error(concat('headrace.errors.{kind.__name__}: ', 'x'))"
    found = recover(Refused(f"headrace.errors.{kind.__name__}: No structure of dbo.a is there. Add it."))
    assert (type(found), str(found)) == (kind, "No structure of dbo.a is there. Add it.")


class _Place:
    label = "Delta table /lake/a"


def _met_by_a_lake(failure: PySparkException) -> None:
    with lake_explained("dbo.a", _Place()):  # type: ignore[arg-type]
        raise failure


def _met_by_kafka(failure: PySparkException) -> None:
    sink = KafkaSink.of({"bootstrap_servers": "k:9092"})
    for _ in range(2):
        # Once it looks closer; what it meets again is an error.
        sink._check_unusual(failure, BatchId("p", "c", 7))


MARKS: dict[StopReason, tuple[Callable[[PySparkException], None], str]] = {
    StopReason.ROW_MISSING: (
        _met_by_a_lake,
        "A change of table dbo.a does not carry all columns, and the Delta table /lake/a has no row of its key. "
        "Take a new snapshot of the table, or set the sink's option 'missing_row' to 'insert'.",
    ),
    StopReason.SEQUENCE_MISSING: (
        _met_by_a_lake,
        "A change for the Delta table /lake/a has no place in the order: its sequence is null. "
        "Leave such rows out, or order by an expression that is never null.",
    ),
    StopReason.NO_ORDER: (_met_by_a_lake, str(no_order("dbo.a", "Delta table /lake/a"))),
    # The sink makes another MERGE then, so nobody meets it as an error.
    StopReason.LATE_CHANGE: (
        _met_by_a_lake,
        "The Delta table /lake/a can't be written (Refused). Run with --debug to see all of it.",
    ),
    StopReason.MAYBE_TOO_LARGE: (
        _met_by_kafka,
        "Kafka at k:9092 did not accept batch 7. Run with --debug to see Kafka's message.",
    ),
    StopReason.NEW_TOPIC: (
        _met_by_kafka,
        "Kafka at k:9092 did not accept batch 7. Run with --debug to see Kafka's message.",
    ),
}


@pytest.mark.parametrize("mark", list(StopReason))
def test_no_run_ends_with_a_bare_mark(mark: StopReason) -> None:
    meet, sentence = MARKS[mark]
    with pytest.raises(HeadraceError) as met:
        meet(Refused(mark))
    assert str(recover(met.value)) == sentence


def test_the_user_own_words_are_not_taken_for_ours() -> None:
    assert recover(Refused("amount must not be negative")) is None


def test_queries_are_stopped_in_one_place_only() -> None:
    source = Path(headrace.__file__).parent
    found = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        if re.search(r"\b(raise_error|assert_true)\(", file.read_text("utf-8"))
    }
    assert found == {"changes/refusal.py"}


def test_a_worker_that_does_not_start_in_time_is_a_sentence() -> None:
    found = recover(
        PySparkException("Job aborted: org.apache.spark.SparkException: Python worker failed to connect back.")
    )
    assert isinstance(found, ConnectError)
    assert "Python worker failed to connect back within ten seconds, several times," in found.message


def test_a_topic_that_is_not_there_is_a_sentence() -> None:
    error = PySparkException("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not")
    assert "does not have a topic that is to be read" in str(recover(error))
