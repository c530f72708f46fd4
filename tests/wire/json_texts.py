"""Texts that are JSON, nearly JSON, and nothing like it, for hypothesis."""

from __future__ import annotations

import json

from hypothesis import strategies as st

PIECES = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b'"a"', b'"b":', b'"\\u00e9"', b'"\\ud83d\\ude00"', b'"\\ud83d"',
    b'"\\ude00"', b'"\\u12"', b'"\\x"', b"0", b"1", b"-", b"-0", b"01", b".5", b"1.", b"1e", b"e+1",
    b"12345678901234567890", b"null", b"true", b"false", b"nul", b"NaN", b" ", b"\n", b"\t", b"\xef\xbb\xbf",
    "é".encode(), "日本".encode(), "😀".encode(), b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b'"\x01"', b'"\x7f"', b"x", b"\x00",
    b'"a string that is longer than a word, with \\n in it"',
]  # fmt: skip

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """Valid JSON, with or without blanks and escapes; a half surrogate in a text is taken out."""
    value = draw(VALUES)
    indent, ascii = draw(st.sampled_from([None, 1])), draw(st.booleans())
    return json.dumps(value, indent=indent, ensure_ascii=ascii).encode()


@st.composite
def broken_texts(draw: st.DrawFn) -> bytes:
    """Valid JSON with a piece of something else put in or cut out."""
    text = draw(json_texts())
    at = draw(st.integers(0, len(text)))
    end = draw(st.integers(at, min(len(text), at + 4)))
    return text[:at] + draw(st.sampled_from([b"", *PIECES])) + text[end:]


PIECED = st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join)
ANY = json_texts() | broken_texts() | PIECED | st.binary(max_size=30)
