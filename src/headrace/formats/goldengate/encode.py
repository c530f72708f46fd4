"""Change rows to GoldenGate messages: one message per row; members that say nothing are left out."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import LogicalType
from headrace.changes.types import arrow_text
from headrace.formats.change_columns import SourceFacts, empty_as_null
from headrace.formats.change_messages import (
    RowSchemas,
    are,
    first_of,
    message_batch,
    operations,
    picked,
    rows_of,
    table_part,
    topics,
)
from headrace.formats.codec import MESSAGES, Codec, Facts
from headrace.formats.images import Image
from headrace.wire.json_writer import Part, members

_LETTERS = {"c": "I", "r": "I", "u": "U", "d": "D", "t": "T"}
_CLOCK = LogicalType("timestamp", 6)


class GoldenGateEncoder(Codec):
    """Writes messages; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, topic: str) -> None:
        self._known, self._topic = RowSchemas(facts), topic

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        numbers = rows_of(batch, tuple(_LETTERS))
        if numbers.size:
            rows = picked(batch, numbers)
            yield message_batch(rows, topics(rows, self._topic), self._values(rows), _key(rows.column("key")))

    def _values(self, rows: pa.RecordBatch) -> pa.StringArray:
        schema_number = self._known.of(rows)
        before = self._known.image(rows, "before").where(are(rows, "u", "d"))
        after = self._known.image(rows, "after").where(are(rows, "u", "c", "r"))
        parts = [table_part(rows, name) for name in ("database", "schema", "name")]
        named = [empty_as_null(part) for part in parts]
        path = pc.binary_join_element_wise(*named, ".", null_handling="skip")
        captured = pc.replace_substring(_clock(rows.column("capture_time")), " ", "T")
        return members(
            {
                "table": Part(path, quoted=True),
                "op_type": Part(operations(rows, _LETTERS), quoted=True),
                "op_ts": Part(_clock(rows.column("event_time")), quoted=True),
                "current_ts": Part(captured, quoted=True),
                "pos": Part(first_of(SourceFacts(rows).texts("pos"), rows.column("position")), quoted=True),
                "xid": Part(pc.struct_field(rows.column("transaction"), "id"), quoted=True),
                "primary_keys": Part(self._known.keys(rows, schema_number)),
                "before": Part(self._known.json(before, schema_number)),
                "after": Part(self._known.json(after, schema_number)),
            },
            rows.num_rows,
        )


def _clock(moments: pa.TimestampArray) -> pa.StringArray:
    return arrow_text(moments.cast(pa.timestamp("us")), _CLOCK)


def _key(keys: pa.MapArray) -> pa.StringArray:
    """The values of keys with `_` between; null where a row has no key."""
    entries = Image.of_maps(keys)
    values = pa.ListArray.from_arrays(pa.array(entries.entries.offsets, pa.int32()), entries.values.fill_null(""))
    joined = pc.binary_join(values, "_")
    return pc.if_else(pa.array(entries.entries.present), joined, pa.scalar(None, pa.string()))
