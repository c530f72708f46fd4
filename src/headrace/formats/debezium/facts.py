"""What source and transaction blocks say of the rows of a batch, as columns of change rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.formats.change_columns import (
    FIRST_MS,
    LAST_MS,
    origin_columns,
    table_column,
    transaction_column,
)
from headrace.formats.debezium.message import SOURCE, TOMBSTONE, TRANSACTION, MemberTexts, Messages, Rows
from headrace.formats.debezium.others import OWN_FACTS
from headrace.formats.debezium.schemas import table_of_topic
from headrace.wire.arrays import map_array, offsets_of
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

_OWN = Names([OWN_FACTS])


def fact_columns(
    batch: pa.RecordBatch, messages: Messages, rows: Rows, given_table: TableId | None, prefix: str | None
) -> dict[str, pa.Array]:
    """The columns that the source block, the transaction block and Kafka say.

    Args:
        batch: columns of `codec.KAFKA`.
        messages: what was found in it.
        rows: its rows.
        given_table: the table of rows that name none; where None, their topic names it.
        prefix: what the names of added fields begin with, where rows are flat.
    """
    tape, at = messages.tape, rows.message
    origin = origin_columns(batch, at)
    empty = rows.op == TOMBSTONE
    source = {name: np.where(empty, np.int32(-1), messages.source.index(name, at)).astype(np.int32) for name in SOURCE}
    snapshot = tape.texts(source["snapshot"])
    id, total, order = (messages.transaction.index(name, at) for name in TRANSACTION)
    flat = messages.flat[at] & ~empty
    has_transaction = (tape.is_value(messages.index("transaction", at)) | (flat & tape.is_value(id))) & ~empty
    orders = [integers(tape, indexes) for indexes in (total, order)]
    known = {name: _known_order(values, orders[0]) for name, values in zip(TRANSACTION[1:], orders, strict=True)}
    return {
        **origin,
        "table": _tables(tape, origin["message"].field("topic"), source, empty, given_table),
        "event_time": _moments(integers(tape, source["ts_us"]), integers(tape, source["ts_ms"])),
        "snapshot": pc.if_else(pc.equal(snapshot, "false"), pa.scalar(None, pa.string()), snapshot),
        "transaction": transaction_column(tape.texts(id), pa.array(has_transaction), **known),
        "source": _source(messages, rows, flat, empty, prefix),
    }


def _tables(
    tape: Tape, topic: pa.StringArray, source: Mapping[str, Array], empty: Array, given_table: TableId | None
) -> pa.StructArray:
    parts = [tape.texts(source[name]) for name in ("db", "schema", "table")]
    unnamed = parts[2].is_null().to_numpy(zero_copy_only=False)
    if not unnamed.any():
        return table_column(parts[0], parts[2], parts[1])
    topics = topic.dictionary_encode()
    named = [None if topic is None else table_of_topic(topic) for topic in topics.dictionary.to_pylist()]
    for index, part in enumerate(("database", "schema", "name")):
        values = pa.array([getattr(id, part) if id is not None else None for id in named], pa.string())
        of_topic = values.take(topics.indices)
        if given_table is not None:
            of_topic = pc.if_else(pa.array(empty), of_topic, getattr(given_table, part))
        parts[index] = pc.if_else(pa.array(unnamed), of_topic, parts[index])
    tables = table_column(parts[0], parts[2], parts[1])
    return pc.if_else(parts[2].is_valid(), tables, pa.scalar(None, tables.type))


def _source(messages: Messages, rows: Rows, flat: Array, empty: Array, prefix: str | None) -> pa.MapArray:
    """The facts of the source block that have no column of their own."""
    tape = messages.tape
    blocks = np.where(flat, messages.value.at[rows.message], messages.index("source", rows.message))
    blocks = np.where(tape.is_value(blocks) & ~empty, blocks, np.int32(-1)).astype(np.int32)
    members = tape.members(blocks)
    kept = tape.is_value(members.values) & ~tape.among(members.names, _OWN)
    texts = MemberTexts.of(tape, members, kept, blocks >= 0)
    return texts.as_maps() if prefix is None or not flat.any() else _flat_facts(texts, flat, prefix)


def _flat_facts(members: MemberTexts, flat: Array, prefix: str) -> pa.MapArray:
    """The facts among a flat record's fields: `source_x` is x, and any other added field but its own is one too."""
    flat_names = ("op", "deleted", "ts_ms")
    encoded = members.names.dictionary_encode()
    renamed: list[str | None] = []
    for name in encoded.dictionary.to_pylist():
        bare = name.removeprefix(prefix) if name.startswith(prefix) else None
        renamed.append(None if bare is None or bare in flat_names else bare.removeprefix("source_"))
    sizes = np.diff(members.offsets)
    is_flat = np.repeat(flat, sizes)
    names = pc.if_else(pa.array(is_flat), pa.array(renamed, pa.string()).take(encoded.indices), members.names)
    is_own = pc.is_in(names, pa.array(OWN_FACTS)).to_numpy(zero_copy_only=False)
    kept = names.is_valid().to_numpy(zero_copy_only=False) & ~(is_flat & is_own)
    chosen = pa.array(np.flatnonzero(kept))
    rows = np.repeat(np.arange(flat.size), sizes)[kept]
    texts, names = members.texts.take(chosen), names.take(chosen)
    # A fact may come both ways: then the source's wins.
    sourced = pc.starts_with(members.names, prefix + "source_").to_numpy(zero_copy_only=False)[kept]
    numbers = names.dictionary_encode().indices.to_numpy()
    order = np.lexsort((~sourced, numbers, rows))
    first = np.ones(rows.size, np.bool_)
    first[1:] = (np.diff(rows[order]) != 0) | (np.diff(numbers[order]) != 0)
    order = np.sort(order[first])
    offsets = offsets_of(np.bincount(rows[order], minlength=flat.size))
    return map_array(offsets, names.take(pa.array(order)), texts.take(pa.array(order)), members.present)


def _known_order(order: pa.Int64Array, total: pa.Int64Array) -> pa.Int64Array:
    """An order of a transaction; 0, which no change has, is one that the writer did not know."""
    unknown = pc.and_(pc.fill_null(pc.equal(total, 0), False), pc.fill_null(pc.equal(order, 0), False))
    return pc.if_else(unknown, pa.scalar(None, pa.int64()), order)


def _moments(micros: pa.Int64Array, millis: pa.Int64Array) -> pa.Array:
    """Commit times; null beyond the years 1 to 9999."""
    of_millis = pc.if_else(
        pc.and_(pc.greater_equal(millis, FIRST_MS), pc.less_equal(millis, LAST_MS)), millis, pa.scalar(None, pa.int64())
    )
    chosen = pc.if_else(micros.is_valid(), micros, pc.multiply(of_millis, 1000))
    fine = pc.and_(pc.greater_equal(chosen, FIRST_MS * 1000), pc.less_equal(chosen, LAST_MS * 1000 + 999))
    return pc.if_else(fine, chosen, pa.scalar(None, pa.int64())).cast(pa.timestamp("us", "UTC"))
