"""A schema with every kind of Avro value, records of it, and what fastavro writes of them."""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import fastavro
from hypothesis import strategies as st

_INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [
        {"name": "a", "type": ["null", "int"]},
        {"name": "b", "type": "bytes"},
        {"name": "list", "type": {"type": "array", "items": ["string", "null"]}},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "R",
    "namespace": "n",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "double", "type": "double"},
        {"name": "float", "type": "float"},
        {"name": "ok", "type": "boolean"},
        {"name": "word", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "before", "type": ["null", _INNER]},
        {"name": "after", "type": "Inner"},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
    ],
}
LONGS = st.integers(-(2**63), 2**63 - 1)
# One NaN: its sign and its payload are in no text.
_FLOATS = st.floats(allow_nan=False) | st.just(math.nan)
_FLOATS_OF_32 = st.floats(width=32, allow_nan=False) | st.just(math.nan)
_INNERS = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**31), 2**31 - 1),
        "b": st.binary(max_size=20),
        "list": st.lists(st.text(max_size=5) | st.none(), max_size=3),
    }
)
RECORDS = st.fixed_dictionaries(
    {
        "number": LONGS,
        "text": st.none() | st.text(max_size=9),
        "double": _FLOATS,
        "float": _FLOATS_OF_32,
        "ok": st.booleans(),
        "word": st.sampled_from("AB"),
        "tags": st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.none(), max_size=3),
        "before": st.none() | _INNERS,
        "after": _INNERS,
        "fixed": st.binary(min_size=3, max_size=3),
    }
)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def as_json(value: Any) -> Any:
    """A value as JSON has it: bytes in base64, and the numbers without digits by their names."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value
