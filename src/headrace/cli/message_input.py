"""The input of `headrace decode`: one message per line in several notations, or one message as a whole."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_BOM = b"\xef\xbb\xbf"


class Input(StrEnum):
    AUTO = "auto"
    LINES = "lines"
    RECORDS = "records"
    BASE64 = "base64"
    BINARY = "binary"


@dataclass(frozen=True)
class InputMessage:
    """A message.

    Args:
        line: the number of its line, from 1.
        topic, partition, offset, timestamp, key, value, headers: as Kafka has them; the timestamp in microseconds since
            1970. The offset is None if the line has none.
    """

    line: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    topic: str = ""
    partition: int = 0
    offset: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True)
class UnreadableLine:
    """A line that is not a message.

    Args:
        line: the number of its line, from 1.
        text: its bytes.
        why: a sentence.
    """

    line: int
    text: bytes
    why: str


def read_input(data: bytes, kind: Input, topic: str) -> tuple[list[InputMessage], list[UnreadableLine]]:
    """The messages of an input, each with an offset of its own, and the lines that are not messages. Skips blank lines.

    Args:
        data: the whole input.
        kind: how messages are written in it.
        topic: the topic of messages that don't name one.
    """
    if kind is Input.BINARY:
        return [InputMessage(1, data, topic=topic, offset=0)], []
    messages: list[InputMessage] = []
    unread: list[UnreadableLine] = []
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), 1):
        line = line.removesuffix(b"\r")
        if not line.strip():
            continue
        try:
            messages.append(replace(_READERS[kind](line), line=number))
        except (ValueError, RecursionError) as error:
            unread.append(UnreadableLine(number, line, f"Line {number} is not a message: {_reason(error)}."))
    return _placed([replace(m, topic=m.topic or topic) for m in messages]), unread


def found_input(data: bytes) -> Input:
    """Records where the first line is one, as the sink `files` and Kafka's tools leave them; else lines.

    A record names its topic beside its value, and nothing that Kafka's messages do not have.
    """
    first = next((line for line in data.removeprefix(_BOM).split(b"\n") if line.strip()), b"")
    return Input.RECORDS if _is_record(first) else Input.LINES


def _is_record(line: bytes) -> bool:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(parsed, dict) or not isinstance(parsed.get("topic"), str) or not parsed.keys() <= _OF_RECORDS:
        return False
    return any(name in parsed for name in _NAMES)


def _placed(messages: list[InputMessage]) -> list[InputMessage]:
    """The messages with offsets that tell them apart: their own, or their lines' numbers where any lacks one."""
    places = {(m.topic, m.partition, m.offset) for m in messages if m.offset is not None}
    if len(places) == len(messages):
        return messages
    return [replace(m, offset=m.line - 1) for m in messages]


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg.lower()} at character {error.pos + 1})"
    if isinstance(error, binascii.Error):
        return "it is not base64"
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(error, RecursionError):
        return "its JSON is nested too deeply"
    return str(error)


def _value_line(line: bytes) -> InputMessage:
    return InputMessage(0, line)


def _base64_line(line: bytes) -> InputMessage:
    return InputMessage(0, base64.b64decode(line.strip(), validate=True))


_NAMES = ("value", "payload", "value_base64")
_OF_RECORDS = frozenset(
    (*_NAMES, "key", "key_base64", "headers", "topic", "partition", "offset", "timestamp", "ts", "tstype", "broker",
     "position", "timestampType")
)  # fmt: skip
"""What a record may name."""


def _record_line(line: bytes) -> InputMessage:
    parsed = json.loads(line.decode())
    if not isinstance(parsed, dict):
        raise ValueError("it is not a JSON object")
    name = next((name for name in _NAMES if name in parsed), None)
    if name is None:
        raise ValueError("it has no `value`")
    return InputMessage(
        0,
        value=_decoded(parsed[name]) if name == "value_base64" else _bytes(parsed[name], name),
        key=_decoded(parsed["key_base64"]) if "key_base64" in parsed else _bytes(parsed.get("key"), "key"),
        headers=_headers(parsed.get("headers")),
        topic=_text(parsed.get("topic"), "topic"),
        partition=_whole(parsed.get("partition"), "partition") or 0,
        offset=_whole(parsed.get("offset"), "offset"),
        timestamp=_micros(parsed.get("timestamp", parsed.get("ts"))),
    )


def _bytes(given: Any, name: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, dict) and given.keys() == {"base64"}:
        return _decoded(given["base64"])
    raise ValueError(f'its `{name}` is neither text, nor null, nor {{"base64": "..."}}')


def _decoded(given: Any) -> bytes | None:
    if given is None:
        return None
    if not isinstance(given, str):
        raise ValueError("its base64 is not text")
    return base64.b64decode(given, validate=True)


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    if given is None:
        return None
    if isinstance(given, dict):
        return tuple(_header(name, value) for name, value in given.items())
    if isinstance(given, list) and all(isinstance(item, dict) and isinstance(item.get("key"), str) for item in given):
        return tuple(
            _header(
                item["key"],
                next(({"base64": item[n]} for n in ("base64", "value_base64") if item.get(n)), item.get("value")),
            )
            for item in given
        )
    # kcat writes names and values in turn.
    if isinstance(given, list) and len(given) % 2 == 0 and all(isinstance(name, str) for name in given[::2]):
        return tuple(_header(name, value) for name, value in zip(given[::2], given[1::2], strict=True))
    raise ValueError("its `headers` are not a list of {key, value}")


def _header(name: str, value: Any) -> tuple[str, bytes | None]:
    return _text(name, "headers"), _bytes(value, "headers")


def _text(given: Any, name: str) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        raise ValueError(f"its `{name}` is not text")
    # Half of a surrogate pair, which JSON allows, is not text for Spark.
    given.encode()
    return given


def _whole(given: Any, name: str) -> int | None:
    if given is None:
        return None
    most = 2**31 if name == "partition" else 2**63
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < most:
        raise ValueError(f"its `{name}` is not a valid number")
    return given


def _micros(given: Any) -> int | None:
    """Microseconds since 1970 of milliseconds, or of a time as ISO 8601 (UTC where it has no zone)."""
    if given is None:
        return None
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) < 2**53:
        return given * 1000
    if isinstance(given, str):
        try:
            time = dt.datetime.fromisoformat(given)
            return ((time if time.tzinfo else time.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            pass
    raise ValueError("its `timestamp` is neither milliseconds nor a time as ISO 8601")


_READERS = {Input.LINES: _value_line, Input.RECORDS: _record_line, Input.BASE64: _base64_line}


def kafka_table(messages: list[InputMessage]) -> pa.Table:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns: dict[str, tuple[Iterator[Any], pa.DataType]] = {
        "topic": ((m.topic for m in messages), pa.string()),
        "partition": ((m.partition for m in messages), pa.int32()),
        "offset": ((m.offset for m in messages), pa.int64()),
        "timestamp": ((m.timestamp for m in messages), pa.timestamp("us", tz="UTC")),
        "key": ((m.key for m in messages), pa.binary()),
        "value": ((m.value for m in messages), pa.binary()),
        "headers": (
            (m.headers and [{"key": name, "value": value} for name, value in m.headers] for m in messages),
            pa.list_(header),
        ),
    }
    return pa.table({name: pa.array(list(values), kind) for name, (values, kind) in columns.items()})


def kafka_frame(spark: SparkSession, messages: list[InputMessage]) -> DataFrame:
    # In one task, which announces a schema once, at the first message that has it.
    return spark.createDataFrame(kafka_table(messages)).coalesce(1)
