"""The tags of a record that is written: what the source says and a record has no field for, and the key."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.constant import constant
from headrace.formats.change_messages import ROWS
from headrace.formats.dts.facts import FACTS, MORE_FACTS
from headrace.formats.dts.schema import SOURCE_TYPES
from headrace.formats.source_facts import SourceFacts
from headrace.wire.arrays import joined_maps, map_array, map_of, offsets_of
from headrace.wire.json_writer import to_text
from headrace.wire.spans import Array

_KEY, _CONNECTOR = "pk_uk_info", "connector"
_FIELDS = frozenset((*FACTS, *MORE_FACTS))
_TYPES = constant([name.lower() for name in SOURCE_TYPES])


def tags_column(rows: pa.RecordBatch, source: SourceFacts, keys: pa.StringArray, source_type: Array) -> pa.MapArray:
    """The tags of each row. The row came with tags of its own where `source` has them as JSON; else it gives its facts.

    Args:
        rows: change rows.
        source: what their sources say.
        keys: the names of the key's columns of each one, as JSON.
        source_type: the index of each one's source in `SOURCE_TYPES`.
    """
    own, given = _own_tags(source.texts("tags"))
    kept = source.values.is_valid().to_numpy(zero_copy_only=False)
    kept &= np.array([word not in _FIELDS for word in source.words], bool)[source.number] & ~own[source.row]
    mask = pa.array(kept)
    counts = np.bincount(source.row[kept], minlength=rows.num_rows)
    names = pc.if_else(pc.equal(source.names, "gtid"), "GTID", source.names)
    facts = map_array(offsets_of(counts), names.filter(mask), source.values.filter(mask))
    is_data = pc.is_in(rows.column("op"), pa.array(ROWS)).to_numpy(zero_copy_only=False)
    named = pc.binary_join_element_wise('{"PRIMARY":', _without_empty(keys), "}", "")
    without = is_data & ~(pc.is_valid(source.texts(_KEY)).to_numpy(zero_copy_only=False) & ~own)
    connector, types = source.texts(_CONNECTOR), _TYPES.take(pa.array(source_type))
    other = pc.and_(pc.not_equal(connector, ""), pc.not_equal(connector, types)).fill_null(False)
    is_other = other.to_numpy(zero_copy_only=False)
    for row, tags in given.items():
        without[row] &= _KEY not in tags
        is_other[row] &= _CONNECTOR not in tags
    null = pa.scalar(None, pa.string())
    more = map_of(
        [
            (_KEY, pc.if_else(pa.array(without), named, null)),
            (_CONNECTOR, pc.if_else(pa.array(is_other), connector, null)),
        ]
    )
    parts = [facts, more]
    if given:
        pairs = [list(given.get(row, {}).items()) for row in range(rows.num_rows)]
        parts.insert(1, pa.array(pairs, facts.type))
    return joined_maps(parts, np.ones(rows.num_rows, bool))


def _own_tags(texts: pa.StringArray) -> tuple[Array, dict[int, dict[str, str]]]:
    """Which rows have tags as a JSON object, and these."""
    own, found = np.zeros(len(texts), bool), {}
    for row in np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)):
        try:
            tags = json.loads(texts[int(row)].as_py())
        except ValueError:
            continue
        if isinstance(tags, dict):
            own[row] = True
            said = {name: value if isinstance(value, str) else to_text(value) for name, value in tags.items()}
            found[int(row)] = {name: value for name, value in said.items() if tags[name] is not None}
    return own, found


def _without_empty(lists: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(lists, "[]"), pa.scalar(None, pa.string()), lists)
