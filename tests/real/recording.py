"""Recordings of what a producer wrote and what the database held: written by a live run, read by `make test`.

A recording is a folder: `<database>_<form>.jsonl.gz` has the Kafka records, a line each (text as text, other bytes as
base64), topic by topic in the order of offsets; `<database>_<form>.registry.json` the Avro schemas by id;
`<database>_truth_<moment>/<table>.jsonl` the tables' rows as the database's client prints them, and `_types.jsonl`
there the columns' types.
"""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.spark.local_rows import local_rows

KAFKA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
Natives = dict[str, dict[str, str]]
Truth = dict[str, list[dict[str, str | None]]]


def messages(spark: Any, records: Iterable[Mapping[str, Any]]) -> Any:
    """Records as Spark reads them from Kafka."""
    return local_rows(spark, message_lines(records), KAFKA)


def message_lines(records: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The columns of Kafka's messages, a line for each record."""
    return [
        (
            record["topic"], record["partition"], record["offset"],
            dt.datetime.fromtimestamp(record["timestamp"] / 1000, dt.UTC), raw_bytes(record["key"]),
            raw_bytes(record["value"]), [(name, raw_bytes(value)) for name, value in record["headers"]],
        )
        for record in records
    ]  # fmt: skip


def read_records(file: Path) -> list[dict[str, Any]]:
    """The Kafka records of a recording."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_truth(folder: Path) -> Truth:
    """The rows of all tables at one moment."""
    return {
        file.stem: [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in sorted(folder.glob("[!_]*.jsonl"))
    }


def read_natives(folder: Path) -> Natives:
    """The columns' types as the database names them, by table."""
    names, file = ("table", "column", "type"), folder / "_types.jsonl"
    if not file.exists():
        names, file = ("table_name", "column_name", "column_type"), folder / "_columns.jsonl"
    found: Natives = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        table, column, native = (json.loads(line)[name] for name in names)
        found.setdefault(table, {})[column] = native
    return found


def write_records(file: Path, kafka: Any) -> None:
    """Keep the records of a DataFrame of Kafka's columns; the same records give the same file."""
    rows = sorted(kafka.collect(), key=lambda row: (row.topic, row.partition, row.offset))
    lines = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "timestamp": round(row.timestamp.timestamp() * 1000),
            "key": _text(row.key),
            "value": _text(row.value),
            "headers": [[header.key, _text(header.value)] for header in row.headers or ()],
        }
        for row in rows
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def write_truth(folder: Path, truth: Truth, natives: Natives) -> None:
    """Keep what the tables held at one moment."""
    folder.mkdir(parents=True, exist_ok=True)
    for table, rows in truth.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{table}.jsonl").write_text(text, encoding="utf-8")
    types = [
        {"table": table, "column": column, "type": native}
        for table, columns in natives.items()
        for column, native in columns.items()
    ]
    (folder / "_types.jsonl").write_text("".join(json.dumps(line) + "\n" for line in types), encoding="utf-8")


def raw_bytes(data: Any) -> bytes | None:
    """A key, value or header value as it was in Kafka."""
    if data is None:
        return None
    return base64.b64decode(data["base64"]) if isinstance(data, dict) else data.encode()


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    # Avro's bytes may happen to be UTF-8.
    return text if text.isprintable() else {"base64": base64.b64encode(data).decode()}
