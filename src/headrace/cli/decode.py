"""`headrace decode`: prints messages of a wire format as change rows."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failure import errors_reported
from headrace.cli.message_input import Input, InputMessage, UnreadableLine, found_input, read_input
from headrace.cli.run import Debug
from headrace.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.cli.row_output import Row
    from headrace.formats.base import Format

AUTO = "auto"
SOME_ERRORS = 1
_STDIN = "-"
_REASONS = 5


def decode(
    file: Annotated[
        str, typer.Argument(help="The file with the messages; - reads the standard input.", show_default=True)
    ] = _STDIN,
    format: Annotated[str, typer.Option("--format", "-f", help="The wire format; auto detects it.")] = AUTO,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="An option of the format; can be repeated. NAME=@FILE reads the value from a file.",
            show_default=False,
        ),
    ] = None,
    input: Annotated[
        Input,
        typer.Option(
            help="lines: each line is a message's value; records: each line is a JSON object with value, key, "
            "headers, topic, partition, offset, timestamp; base64: each line is a value in base64; binary: "
            "the whole input is one value; auto: records if the first line is a record, else lines."
        ),
    ] = Input.AUTO,
    topic: Annotated[str, typer.Option(help="The topic of messages that don't name one.")] = "messages",
    as_json: Annotated[bool, typer.Option("--json", help="Print one change row per line, as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Print messages as change rows. Exits with 1 if some can't be read, with 2 if none could be tried.

    Reads the whole input before it prints the first row. Prints the rows to the standard output in the order of the
    messages, and the detected format and the counts to the standard error output.
    """
    with errors_reported(debug):
        options = _options(option or [])
        data = _read(file)
        if input is Input.AUTO:
            input = found_input(data)
            if input is not Input.LINES:
                sys.stderr.write(f"Input: {input}.\n")
        messages, unread = read_input(data, input, topic)
        name, options = _detected(messages, options) if format == AUTO else (format, options)
        detected = _format(name, options)
        rows = _decoded(detected, messages, debug) if messages else []
        failed = _show(messages, unread, rows, as_json)
    if failed:
        raise typer.Exit(SOME_ERRORS)


def _read(file: str) -> bytes:
    if file == _STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise OptionError(f"Can't read the file '{file}': {error.strerror}.", remedy="Check the path.") from error


def _options(given: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(f"Option '{text}' has no value.", remedy="Write -o name=value.")
        if name in options:
            raise OptionError(f"Option '{name}' is given twice.", remedy="Keep one.")
        if value.startswith("@"):
            try:
                value = Path(value[1:]).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise OptionError(
                    f"Can't read the file '{value[1:]}' of option '{name}' as text.", remedy="Check the path."
                ) from error
        options[name] = value
    return options


def _detected(messages: list[InputMessage], options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The format of the messages, printed to stderr; given options override detected ones."""
    from headrace.formats.detect import detect
    from headrace.formats.recognition import Sample

    detection = detect([Sample(m.value, m.key, tuple(name for name, _ in m.headers or ())) for m in messages])
    sys.stderr.write(f"Format: {detection.sentence}.\n")
    return detection.format, {**detection.options, **options}


def _format(name: str, options: dict[str, Any]) -> Format:
    from headrace.formats.convert import format_named

    return format_named(name, options)


def _decoded(format: Format, messages: list[InputMessage], debug: bool) -> list[Row]:
    from headrace.cli.message_input import kafka_frame, kafka_table
    from headrace.cli.row_output import collect_rows, rows_of
    from headrace.formats.codec import ArrowFormat
    from headrace.formats.convert import decoded

    if isinstance(format, ArrowFormat) and not format.needs_spark:
        # The format needs no Spark, so none is started.
        return rows_of(format.decoded(kafka_table(messages).to_batches()))
    return collect_rows(decoded(format, kafka_frame(_session(debug), messages)))


def _session(debug: bool) -> SparkSession:
    from headrace.spark.session import silence, spark_session

    spark = spark_session("headrace decode", short_lived=True)
    if not debug:
        # An error is one sentence; Spark would print its stack traces around it.
        silence(spark)
    return spark


def _show(messages: list[InputMessage], unread: list[UnreadableLine], rows: list[Row], as_json: bool) -> bool:
    """Print the rows in the order of their messages; returns whether some message could not be read."""
    from headrace.cli.row_output import counts_text, error_row, json_line, text_lines

    lines = {(m.topic, m.partition, m.offset): m.line for m in messages}
    placed: list[tuple[int | None, Row]] = [(_line(row, lines), row) for row in rows]
    placed += [(one.line, error_row(one.text, one.why)) for one in unread]
    silent = sorted(set(lines.values()) - {line for line, _ in placed})
    printed: list[tuple[int, str, list[str]]] = []
    for line, row in placed:
        shown = [json_line(row, line)] if as_json else list(text_lines(row, line))
        printed.append((line or 0, row["position"] or "", shown))
    if not as_json:
        printed += [(line, "", [f"line {line}: not an event"]) for line in silent]
    _print(text for _, _, shown in sorted(printed, key=lambda found: found[:2]) for text in shown)
    everything = len(messages) + len(unread)
    sys.stderr.write(f"{counts_text([row['op'] for _, row in placed], everything, len(silent))}\n")
    errors = Counter(row["error"] for _, row in placed if row["op"] == "error")
    for reason, count in errors.most_common(_REASONS):
        sys.stderr.write(f"  {count:,} x {reason}\n")
    if len(errors) > _REASONS:
        sys.stderr.write(f"  and {len(errors) - _REASONS:,} other reasons\n")
    return bool(errors)


def _print(lines: Iterable[str]) -> None:
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _line(row: Row, lines: Mapping[Any, int]) -> int | None:
    """The line of the message that a row came from; None if the row has none."""
    message = row["message"] or {}
    return lines.get((message.get("topic"), message.get("partition"), message.get("offset")))
