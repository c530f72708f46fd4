"""`key_text`: a key as one ordered JSON array of canonical texts, by which rows are grouped, joined and partitioned.

The text form is that of Spark's `to_json(array(...))`, so that a key made here (Arrow), by a decoder (Spark SQL) or in
Python is the same text: `["1005"]`, `["é\\"x",null]`; control characters as in Java's JSON (`\\u001F` upper case).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_CONTROL = r"[\x00-\x1f]"


def key_text(texts: Sequence[str | None]) -> str:
    """The key text of one key."""
    return "[" + ",".join("null" if t is None else f'"{_escape(t)}"' for t in texts) + "]"


def key_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """The key texts of whole columns of canonical text, one per key column in key order."""
    parts: list[pa.Array | str] = []
    for number, column in enumerate(columns):
        parts.append("," if number else "[")
        quoted = pc.binary_join_element_wise('"', _escape_all(column), '"', "")
        parts.append(quoted.fill_null("null") if column.null_count else quoted)
    return pc.binary_join_element_wise(*parts, "]", "")


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda m: _SHORT.get(m[0]) or f"\\u{ord(m[0]):04X}", text)


def _escape_all(column: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
        # Control characters in a key are rare; then the column is escaped value by value.
        return pa.array([None if t is None else _escape(t) for t in column.to_pylist()], pa.string())
    for plain in ("\\", '"'):
        if pc.any(pc.match_substring(column, plain)).as_py():
            column = pc.replace_substring(column, plain, _SHORT[plain])
    return column
