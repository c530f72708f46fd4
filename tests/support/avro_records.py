"""Records"""

from __future__ import annotations

import io
from typing import Any

import fastavro
from hypothesis import strategies as st

SCHEMA = {
    "type": "record",
    "name": "R",
    "namespace": "n",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": ["null", "string", {"type": "array", "items": "long"}]},
        {"name": "ratio", "type": "double"},
        {"name": "word", "type": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "rows",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "P",
                    "fields": [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": "bytes"}],
                },
            },
        },
        {"name": "last", "type": "E"},
    ],
}


_PARSED = fastavro.parse_schema(SCHEMA)


_LONGS = st.integers(-(2**63), 2**63 - 1)


RECORDS = st.fixed_dictionaries(
    {
        "number": _LONGS,
        "text": st.none() | st.text(max_size=9) | st.lists(_LONGS, max_size=4),
        "ratio": st.floats(allow_nan=False),
        "word": st.sampled_from("ABC"),
        "tags": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
        "rows": st.lists(
            st.fixed_dictionaries({"a": st.none() | st.integers(-(2**31), 2**31 - 1), "b": st.binary(max_size=9)}),
            max_size=3,
        ),
        "last": st.sampled_from("ABC"),
    }
)


def written(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, record)
    return out.getvalue()
