"""What records say of their source, as the column `source` of change rows: their fields, and their tags."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.constant import constant
from headrace.formats.dts.record import FIELD, Records
from headrace.formats.dts.schema import OPERATIONS, SOURCE_TYPES
from headrace.wire.arrays import joined_maps, map_array, map_of, offsets_of
from headrace.wire.json_exact import NULL
from headrace.wire.json_writer import to_text
from headrace.wire.spans import Array

FACTS = ("connector", "version", "id", "sourcePosition", "safeSourcePosition")
"""What a record says of its source beside the tags, as `source` has it; these stand in every row."""
MORE_FACTS = ("operation", "sourceTimestamp", "bornTimestamp", "processTimestamps", "objectName", "ddl", "tags")
"""Further facts, which stand in a row where they say something."""

_CONNECTORS = np.array(["" if name == "OTHER" else name.lower() for name in SOURCE_TYPES])
_CHECKPOINT = OPERATIONS.index("CHECKPOINT")
_OWN = constant([*FACTS[1:], *MORE_FACTS])


def source_column(records: Records, rows: Array, present: Array, second: Array, told: Array) -> pa.MapArray:
    """The facts of records, and their tags. Where a tag has a fact's name, all tags stand in `tags` too, as JSON.

    Args:
        records: of a batch.
        rows: which of them.
        present: which of these have facts.
        second: their `sourceTimestamp`.
        told: where that is the row's `event_time`.
    """
    tape = records.tape

    def texts(at: Array) -> pa.StringArray:
        return tape.texts(np.ascontiguousarray(at[rows]))

    type_name = pa.array(_CONNECTORS[tape.numbers(np.ascontiguousarray(records.source[0][rows]))])
    facts = map_of(
        [
            ("connector", pc.coalesce(texts(records.connector), type_name)),
            ("version", texts(records.source[1])),
            ("id", pa.array(tape.numbers(np.ascontiguousarray(records.at[FIELD["id"]][rows]))).cast(pa.string())),
            ("sourcePosition", texts(records.at[FIELD["sourcePosition"]])),
            ("safeSourcePosition", texts(records.at[FIELD["safeSourcePosition"]])),
        ]
    )
    tags, hidden = _tags(records, rows)
    return joined_maps([facts, tags, _more(records, rows, second, told, hidden)], present)


def _tags(records: Records, rows: Array) -> tuple[pa.MapArray, pa.StringArray]:
    """The tags that have no name of a fact; and all tags as JSON where some have one."""
    members = records.tape.members(np.ascontiguousarray(records.at[FIELD["tags"]][rows]))
    names, values = records.tape.texts(members.names), records.tape.texts(members.values)
    row = np.repeat(np.arange(rows.size), np.diff(members.offsets))
    own = pc.is_in(names, _OWN).to_numpy(zero_copy_only=False)
    kept = ~own & ~pc.equal(names, "connector").to_numpy(zero_copy_only=False)
    offsets = offsets_of(np.bincount(row[kept], minlength=rows.size))
    mask = pa.array(kept)
    found = map_array(offsets, names.filter(mask), values.filter(mask))
    hidden: list[str | None] = [None] * rows.size
    for number in np.unique(row[own]):
        here = slice(int(members.offsets[number]), int(members.offsets[number + 1]))
        pairs = dict(zip(names[here].to_pylist(), values[here].to_pylist(), strict=True))
        hidden[number] = to_text(pairs)
    return found, pa.array(hidden, pa.string())


def _more(records: Records, rows: Array, second: Array, told: Array, hidden: pa.StringArray) -> pa.MapArray:
    tape = records.tape

    def numbers(values: Array, mask: Array) -> pa.StringArray:
        return pa.array(values, mask=~mask).cast(pa.string())

    born = records.born[rows]
    is_checkpoint = pa.array(records.operation[rows] == _CHECKPOINT)
    path = tape.texts(np.ascontiguousarray(records.at[FIELD["objectName"]][rows]))
    long = pc.fill_null(pc.greater(pc.count_substring(path, "."), 2), False)
    # More than the names of a table.
    kept = pc.and_(long, pa.array(records.is_data[rows]))
    return map_of(
        [
            ("operation", pc.if_else(is_checkpoint, "CHECKPOINT", pa.scalar(None, pa.string()))),
            ("sourceTimestamp", numbers(second, ~told & (second != 0))),
            ("bornTimestamp", numbers(born, born != 0)),
            ("processTimestamps", _process_timestamps(records, rows)),
            ("objectName", pc.if_else(kept, path, pa.scalar(None, pa.string()))),
            ("ddl", tape.texts(np.ascontiguousarray(records.ddl[rows]))),
            ("tags", hidden),
        ]
    )


def _process_timestamps(records: Records, rows: Array) -> pa.StringArray:
    at = np.ascontiguousarray(records.at[FIELD["processTimestamps"]][rows])
    found: list[str | None] = [None] * rows.size
    for row in np.flatnonzero(records.tape.kinds(at) != NULL):
        items = records.tape.items(at[row : row + 1])[1]
        found[row] = to_text(records.tape.numbers(items).tolist())
    return pa.array(found, pa.string())
