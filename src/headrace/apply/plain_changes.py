"""Plain changes: decoded rows of which only the last one of each key matters.

Workers test for them in Arrow, as Spark SQL does in `headrace.apply.sequence`, `transactions` and `profile`; a test
compares the two. Rows that are not plain are left to Spark.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.apply.sequence import MARK, SUFFIX
from headrace.apply.transactions import (
    CAME,
    CHANGED,
    KEY_HEADERS,
    NEVER_SHARED,
    TRANSACTION_IDS,
    WHOLE_DELETERS,
)
from headrace.changes.images import Images, one_array, sizes
from headrace.changes.row import DATA_OPERATIONS, SNAPSHOT_ENDS, Operation

PLAIN = pa.array([operation.value for operation in DATA_OPERATIONS if operation is not Operation.TRUNCATE])
"""The operations of plain changes."""


def plain_changes(rows: pa.Table, columns: int, topic_ids: Mapping[str, str]) -> pa.Table | None:
    """The columns that a fold reads (`position`, `comes`, `after`, `key`, `before`), with sequenced positions; None
    where some row is not a plain change.

    Not plain is a change that may move its row to another key, that lacks columns, or that ends a snapshot.

    Args:
        rows: change rows of one table, all decoded from messages.
        columns: how many columns their schema has.
        topic_ids: the id of each topic, where the broker reports it.
    """
    ops = one_array(rows, "op")
    if not _all(pc.is_in(ops, PLAIN)) or _any(pc.is_in(one_array(rows, "snapshot"), pa.array(SNAPSHOT_ENDS))):
        return None
    comes = pc.not_equal(ops, Operation.DELETE.value)
    is_there = comes.to_numpy(zero_copy_only=False)
    widths, source = sizes(one_array(rows, "after")), Images(one_array(rows, "source"))
    connectors = source.column("connector")[0]
    is_not_plain = (
        not (widths[is_there] >= columns).all()
        or widths[~is_there].any()
        or _any(pc.and_(pc.invert(comes), pc.is_in(connectors, pa.array(WHOLE_DELETERS))))
        or _has_key_header(one_array(rows, "message"))
        or _may_change_key(rows.select(["key", "before", "after"]).filter(pc.equal(ops, Operation.UPDATE.value)))
    )
    positions = None if is_not_plain else _positions(rows, source, connectors)
    sequences = None if positions is None else _sequences(one_array(rows, "message"), topic_ids)
    if positions is None or sequences is None:
        return None
    at = pc.binary_join_element_wise(positions, sequences, MARK)
    images = [one_array(rows, name) for name in ("after", "key", "before")]
    return pa.table([at, comes, *images], ["position", "comes", "after", "key", "before"])


def _any(flags: pa.Array) -> bool:
    return bool(pc.any(flags).as_py())


def _all(flags: pa.Array) -> bool:
    return bool(pc.all(flags, skip_nulls=False).as_py())


def _has_key_header(messages: pa.Array) -> bool:
    """Whether a change is one half of a change of key, as Debezium's headers say."""
    headers = pc.struct_field(messages, "headers").flatten()
    return len(headers) > 0 and _any(pc.is_in(pc.struct_field(headers, "key"), pa.array(KEY_HEADERS)))


def _may_change_key(updates: pa.Table) -> bool:
    """Whether an update may carry a row to another key (`KEY_CHANGED`)."""
    if not updates.num_rows:
        return False
    if not sizes(one_array(updates, "key")).all():
        return True
    keys = Images(one_array(updates, "key"))
    images = [Images(one_array(updates, name)) for name in ("before", "after")]
    for name in keys.names:
        text, known = keys.column(name)
        for value, has in (image.column(name) for image in images):
            if (known & has & ~_same(text, value)).any():
                return True
    return False


def _same(one: pa.Array, other: pa.Array) -> NDArray[np.bool_]:
    """Whether texts are equal, null being equal to null."""
    equal = pc.fill_null(pc.equal(one, other), False)
    same: NDArray[np.bool_] = pc.or_(equal, pc.and_(one.is_null(), other.is_null())).to_numpy(zero_copy_only=False)
    return same


def _positions(rows: pa.Table, source: Images, connectors: pa.Array) -> pa.Array | None:
    """The positions, each with its transaction (`origin_of`)."""
    positions = one_array(rows, "position")
    if positions.null_count or _any(pc.match_substring(positions, MARK)):
        return None
    may_be_cut = pc.invert(pc.is_in(connectors, pa.array(NEVER_SHARED)))
    ops = one_array(rows, "op")
    has_origin = pc.and_(may_be_cut, pc.is_in(ops, pa.array([Operation.CREATE.value, Operation.UPDATE.value])))
    if not _any(has_origin):
        return positions
    transaction = pc.struct_field(one_array(rows, "transaction"), "id")
    texts = pc.coalesce(*(transaction if name is None else source.column(name)[0] for name in TRANSACTION_IDS))
    # Python runs once a transaction: Arrow has no CRC.
    codes = texts.dictionary_encode()
    numbers = pa.array([f"{zlib.crc32(text.encode()):08x}" for text in codes.dictionary.to_pylist()], pa.string())
    kind = pc.if_else(pc.equal(ops, Operation.CREATE.value), CAME, CHANGED)
    origin = pc.binary_join_element_wise(kind, numbers.take(codes.indices), "")
    return pc.binary_join_element_wise(positions, pc.if_else(has_origin, pc.fill_null(origin, ""), ""), "")


def _sequences(messages: pa.Array, topic_ids: Mapping[str, str]) -> pa.Array | None:
    """The sequence of each position (`headrace.apply.sequence.sequenced`)."""
    topics, partitions = (pc.struct_field(messages, name) for name in ("topic", "partition"))
    if messages.null_count or topics.null_count or partitions.null_count:
        return None
    partition_names = pc.binary_join_element_wise(topics, partitions.cast(pa.string()), "/").dictionary_encode()
    texts = []
    for name in partition_names.dictionary.to_pylist():
        text = f"{name}/{topic_ids.get(name.rpartition('/')[0], '')}"
        texts.append(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:SUFFIX])
    return pa.array(texts, pa.string()).take(partition_names.indices)
