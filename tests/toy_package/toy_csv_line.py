"""A format: a change as one line of CSV.

    u,shop,dbo,orders,*id=1,-id=1,-note=old,+id=1,+note

Operation, database, schema and table; then columns, those of the key with `*`, of the image before with `-`, of the
image after with `+`. A column without `=` is NULL, and one that is not there is absent.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.changes import TableId, arrow_schema
from headrace.changes.texts import key_text
from headrace.errors import FormatError, OptionError
from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.change_columns import error_row, single_row
from headrace.formats.codec import MESSAGES, ArrowFormat, Codec, Facts, kafka_batch
from headrace.formats.encoding import topic_for
from headrace.formats.features import Feature

IMAGES = {"*": "key", "-": "before", "+": "after"}


class CsvLineSettings(FormatSettings):
    """What every format has, and the topic."""

    topic: str = topic_option()


class CsvLine(ArrowFormat):
    """Inserts, updates, deletes, truncates and snapshot rows. It says no types, times and transactions."""

    name = "csv_line"
    settings: CsvLineSettings
    reads = writes = frozenset(
        (
            Feature.READ, Feature.TRUNCATE, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT, Feature.KEY,
            Feature.KEY_CHANGE, Feature.DATABASE, Feature.SCHEMA_NAME,
        )
    )  # fmt: skip
    written_columns = ("op", "table", "key", "key_text", "before", "after", "position")

    def decoder(self, facts: Facts) -> Codec:
        _refuse_structs(facts)
        return CsvDecoder()

    def encoder(self, facts: Facts) -> Codec:
        _refuse_structs(facts)
        return CsvEncoder(self.settings.topic)


class CsvDecoder(Codec):
    """From messages to change rows."""

    schema = arrow_schema()

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        values = batch.column("value").to_pylist()
        rows = [self._row(batch, number, value) for number, value in enumerate(values)]
        yield pa.RecordBatch.from_pylist(rows, self.schema)

    def _row(self, batch: pa.RecordBatch, number: int, value: bytes | None) -> dict[str, Any]:
        if value is None:
            # No event: a row without an operation.
            return single_row(batch, number)
        try:
            return single_row(batch, number) | _change(value)
        except FormatError as error:
            return error_row(batch, number, str(error))


class CsvEncoder(Codec):
    """From change rows to messages."""

    schema = MESSAGES

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = [row for row in batch.to_pylist() if row["op"] in ("r", "c", "u", "d", "t")]
        yield pa.RecordBatch.from_pylist([self._message(row) for row in rows], self.schema)

    def _message(self, row: dict[str, Any]) -> dict[str, Any]:
        table = [row["table"][part] or "" for part in ("database", "schema", "name")]
        columns = [
            mark + name + ("" if text is None else f"={text}")
            for mark, image in IMAGES.items()
            for name, text in row[image] or ()
        ]
        line = io.StringIO()
        csv.writer(line, lineterminator="\r\n").writerow([row["op"], *table, *columns])
        return {
            "topic": topic_for(self._topic, TableId(*table)),
            "key": None if row["key_text"] is None else row["key_text"].encode(),
            "value": line.getvalue().removesuffix("\r\n").encode(),
            "position": row["position"],
        }


def _refuse_structs(facts: Facts) -> None:
    if facts.typed is not None:
        raise OptionError("Format 'csv_line' takes no single schema.", remedy="Give a list of TableSchemas, or none.")


def _change(value: bytes) -> dict[str, Any]:
    """The columns of a change row that a line says."""
    try:
        [(op, database, schema, name, *columns)] = csv.reader([value.decode()], strict=True)
    except (ValueError, csv.Error) as error:
        raise FormatError("The message is not one line of CSV with an operation and a table.") from error
    if op not in ("r", "c", "u", "d", "t"):
        raise FormatError("The first field of the line is not an operation.")
    images: dict[str, list[tuple[str, str | None]]] = {}
    for column in columns:
        image = IMAGES.get(column[:1])
        if image is None:
            raise FormatError("A column of the line does not begin with *, - or +.")
        column_name, equals, text = column[1:].partition("=")
        images.setdefault(image, []).append((column_name, text if equals else None))
    return {
        "op": op,
        "table": {"database": database, "schema": schema, "name": name},
        "key_text": key_text([text for _, text in images["key"]]) if "key" in images else None,
        **images,
    }
