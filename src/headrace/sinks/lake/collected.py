"""Small batches of many tables in the driver: collected in one Spark job, folded and typed without one for each table.

It gives what `headrace.apply.fold` gives for rows that are whole. Texts that are not the canonical ones of their
column's type are left to that: there they are another text form of a value, null, or an error, as Spark's casts have
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.apply import TableProfile, kept_bytes, no_order
from headrace.apply.sequence import has_disorder
from headrace.apply.shared_keys import may_share_keys
from headrace.apply.standing_rows import needs_target_rows
from headrace.changes.images import Images, one_array
from headrace.changes.table import Column, TableId
from headrace.changes.typed import literal
from headrace.sinks.lake.data_files import arrow_type
from headrace.sinks.lake.keys import KeyForm, Keys
from headrace.sinks.lake.whole_rows import CollectedRows
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST = 100_000
"""Up to how many rows of a batch are collected as texts."""
MOST_OF_TABLE = 20_000
"""Up to how many rows of a table are: more are worth a Spark job of their own."""
MOST_BYTES = 128 << 20
"""Up to how many bytes Spark keeps the rows of a batch in, for any of them to be collected."""
TEXTS = (
    "position",
    "op <> 'd' as comes",
    "if(op = 'd', null, after) as after",
    "key",
    "if(op = 'd', before, null) as before",
)
"""What `fold_texts` reads of change rows."""
_BETWEEN = "\x1f"
_DAY = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
_WHOLE = "-?[0-9]{1,38}"
_CANONICAL = {
    "boolean": "true|false",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _WHOLE),
    "decimal": r"-?[0-9]{1,38}(?:\.[0-9]{1,38})?",
    **dict.fromkeys(("float", "double"), r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?|NaN|-?Infinity"),
    "binary": "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "date": _DAY,
    "timestamp_ntz": f"{_DAY} {_CLOCK}",
    "timestamp": f"{_DAY}T{_CLOCK}(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])",
}
"""Texts that have one value, by Spark's type."""


def is_simple(table: TableProfile) -> bool:
    """Whether the last change of a key is all that a batch has to say of it."""
    return bool(
        table.schema.key
        and table.size
        and not table.partial
        and table.emptying.truncate_at is None
        and not table.old_values
        and not table.renamed
        and not may_share_keys(table)
        and not needs_target_rows(table)
    )


def are_small(rows: DataFrame) -> bool:
    """Whether a batch's rows take so little memory that those of small tables may come into the driver.

    Of rows that are not persisted nothing is known; then their number alone counts.
    """
    size = kept_bytes(rows)
    return size is None or size <= MOST_BYTES


def collect_texts(rows: DataFrame, tables: Sequence[TableProfile]) -> dict[TableId, pa.Table]:
    """Bring the data rows of some tables into the driver, as texts. Runs one Spark job.

    Args:
        rows: the batch's change rows.
        tables: simple ones (`is_simple`).
    """
    names = {_BETWEEN.join((t.id.database, t.id.schema, t.id.name)): t.id for t in tables}
    parts = ", ".join(f"coalesce(table.{part}, '')" for part in ("database", "schema", "name"))
    name = f"concat_ws({literal(_BETWEEN)}, {parts})"
    collected = (
        rows.where(f"op in ('r', 'c', 'u', 'd') and {name} in ({', '.join(map(literal, names))})")
        .selectExpr(f"{name} as name", *TEXTS)
        .toArrow()
        .combine_chunks()
    )
    indexes = one_array(collected, "name").dictionary_encode()
    numbers = indexes.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(indexes.dictionary) + 1))
    return {
        names[text]: collected.take(pa.array(order[start:end]))
        for text, (start, end) in zip(indexes.dictionary.to_pylist(), pairwise(ends), strict=True)
    }


def fold_texts(
    rows: pa.Table, table: TableProfile, nullable: frozenset[str], position: str, label: str
) -> CollectedRows | None:
    """The last change of each key, typed; None where a value's text is not the canonical one of its type.

    Args:
        rows: what was collected of the table.
        table: its profile.
        nullable: the columns of its key that may be null.
        position: the name of the column with the position.
        label: the target as messages name it.

    Raises:
        SchemaError: which of two changes is the later one is not known.
    """
    kinds = {column.name: arrow_type(column.logical.spark_type) for column in table.schema.columns}
    if None in kinds.values():
        return None
    keys = {}
    image = cache(lambda name: Images(one_array(rows, name)))
    for column in table.schema.key_columns:
        texts = _key_texts(image, column.name)
        typed = None if texts is None else typed_texts(texts, column, table.lacks.get(column.name, ""))
        if typed is None:
            return None
        keys[column.name] = typed
    form = KeyForm({c.name: c.logical.spark_type for c in table.schema.key_columns}, nullable)
    key_values = form.keys(pa.table(keys))
    if len(key_values) < rows.num_rows:
        return None
    positions = one_array(rows, "position")
    last = last_changes(key_values, positions, table, label)
    comes = one_array(rows, "comes").take(pa.array(last))
    is_there = comes.to_numpy(zero_copy_only=False)
    there, gone = last[is_there], last[~is_there]
    columns: dict[str, pa.Array] = {}
    for column in table.schema.columns:
        kind = kinds[column.name]
        if column.name in keys:
            values, left = keys[column.name].take(pa.array(there)), keys[column.name].take(pa.array(gone))
        else:
            texts = image("after").column(column.name)[0].take(pa.array(there))
            values = typed_texts(texts, column, table.lacks.get(column.name, ""))
            left = pa.nulls(len(gone), kind)
        if values is None:
            return None
        columns[column.name] = pa.concat_arrays([values, left])
    columns[position] = positions.take(pa.array(np.concatenate([there, gone])))
    comes = pa.array(np.arange(len(last)) < len(there))
    return CollectedRows(
        pa.table(columns), comes, table.schema.key, nullable, position, table.decoded, table.id.full_path
    )


def last_changes(keys: Keys, positions: pa.Array, table: TableProfile, label: str) -> NDArray[np.int64]:
    """Which changes of a batch are the last of their keys.

    Args:
        keys: of all changes.
        positions: theirs.
        table: the table's profile.
        label: the target as messages name it.

    Raises:
        SchemaError: which of two changes is the later one is not known.
    """
    groups = pc.dictionary_encode(keys.values).indices if keys.values is not None else pa.array(keys.prints)
    order = pc.sort_indices(
        pa.table({"group": groups, "position": positions}),
        sort_keys=[("group", "ascending"), ("position", "ascending")],
    ).to_numpy()
    group_of = groups.to_numpy()[order]
    is_last = np.append(group_of[1:] != group_of[:-1], True)[: len(order)]
    if table.decoded:
        earlier = np.flatnonzero(~is_last)
        if has_disorder(*(positions.take(pa.array(order[earlier + step])) for step in (0, 1))):
            raise no_order(table.id.full_path, label)
    last: NDArray[np.int64] = order[is_last].astype(np.int64)
    return last


def _key_texts(image: Callable[[str], Images], name: str) -> pa.Array | None:
    """The texts of a key column, from the first image that has it, in the order in which `headrace.apply.fold` looks at
    them; None where none has it."""
    texts, known = image("after").column(name)
    for other in ("key", "before"):
        if known.all():
            break
        texts_there, has = image(other).column(name)
        texts, known = pc.if_else(pa.array(known), texts, texts_there), known | has
    return texts if known.all() else None


def typed_texts(texts: pa.Array, column: Column, lacks: str = "") -> pa.Array | None:
    """The values of texts; None where one is not the canonical text of a value.

    Args:
        texts: null for null.
        column: theirs.
        lacks: a regular expression of texts that the target has no place for.
    """
    if lacks and pc.any(pc.match_substring_regex(texts, lacks)).as_py():
        return None
    kind = column.logical.spark_type
    if kind == "string":
        return texts
    pattern = _CANONICAL[kind.partition("(")[0]]
    if pc.any(pc.invert(pc.match_substring_regex(texts, f"^(?:{pattern})$"))).as_py():
        return None
    typed = TypedColumn(Tape.of_texts(texts), np.arange(len(texts), dtype=np.int32), arrow_type(kind))
    return None if typed.refused.size else typed.values
