"""What is not a row and no edge of a transaction, one by one: tombstones, fillers, and DDL statements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.formats.change_columns import single_row
from headrace.formats.dts.facts import source_column
from headrace.formats.dts.record import FIELD, Records
from headrace.formats.dts.schemas import Table
from headrace.formats.words import BLANK

# Python's datetimes end where Spark's do not.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
_TRUNCATE = re.compile(rf"(?i){BLANK}*+TRUNCATE\b")
_PART = r'(?:`(?:[^`]|``)++`|"(?:[^"]|"")++"|\[[^\]]++\]|[^\s;.`"\[]++)'
_TRUNCATED = re.compile(rf"(?i){BLANK}*+TRUNCATE{BLANK}++(?:TABLE{BLANK}++)?+(?:{_PART}\.)*({_PART})")


def other_row(batch: pa.RecordBatch, records: Records, number: int) -> dict[str, Any]:
    """The row of a message: a tombstone, a filler (its `op` is null), or a statement."""
    row = single_row(batch, number)
    if records.tombstone[number]:
        return row | {"op": "tombstone"}
    return row if records.filler[number] else row | _statement(records, number)


def _statement(records: Records, number: int) -> dict[str, Any]:
    tape = records.tape

    def text(at: int) -> str | None:
        return tape.text(int(at))

    sql = text(records.ddl[number]) or ""
    truncates = _TRUNCATE.match(sql) is not None
    table = Table.of(text(records.at[FIELD["objectName"], number]))
    name = None if table is None else table.name
    if table is not None and name is None and truncates:
        # The record often says the database only.
        name = _truncated(sql)
    rows = np.array([number])
    second = tape.numbers(np.ascontiguousarray(records.at[FIELD["sourceTimestamp"]][rows]))
    told = (second != 0) & (second >= FIRST_SECOND) & (second <= LAST_SECOND)
    txid = text(records.at[FIELD["sourceTxid"], number])
    return {
        "op": "t" if truncates else "schema",
        "table": None if table is None else {"database": table.database, "schema": table.schema, "name": name},
        "event_time": int(second[0]) * 1_000_000 if told[0] else None,
        "transaction": None if txid in ("", "0") else {"id": txid},
        "source": source_column(records, rows, np.ones(1, bool), second, told)[0].as_py(),
    }


def _truncated(sql: str) -> str | None:
    """The table that a TRUNCATE names."""
    found = _TRUNCATED.match(sql)
    word = found[1] if found is not None else ""
    if word[:1] in ("`", '"'):
        return word[1:-1].replace(word[0] * 2, word[0]) or None
    return (word[1:-1] if word.startswith("[") else word) or None
