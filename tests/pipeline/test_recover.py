"""Our sentence is found in what Spark makes of it."""

from __future__ import annotations

import pytest

from headrace.errors import CaptureError, ConnectError, FormatError, HeadraceError, SinkError
from headrace.pipeline.recover import find_in_text, recover
from headrace.sources.change_tables.connection import LostConnection

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
    met.__cause__ = RuntimeError("[USER_RAISED_EXCEPTION] No structure of dbo.a is there. Add it. SQLSTATE: P0001")
    found = recover(met)
    assert (type(found), str(found)) == (FormatError, "No structure of dbo.a is there. Add it.")
