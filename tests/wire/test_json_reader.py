"""JSON is what RFC 8259 says: one value per message, UTF-8, and nothing behind it.

The kernel reads what the exact reader does, byte for byte, and what can't be read costs no other message.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_texts import ANY, json_texts
from tests.smoke import examples

from headrace.wire import json_exact
from headrace.wire.json_exact import BROKEN, MORE, READ
from headrace.wire.json_reader import Tokens, read_all
from headrace.wire.tape import read_exactly


def tokens_of(texts: list[bytes], read: Any) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Verdict and tokens of each text, with numbers that begin at its own first token and byte."""
    # No byte to spare behind the last text.
    data = np.frombuffer(b"".join(texts), np.uint8) if any(texts) else np.zeros(0, np.uint8)
    offsets = np.frombuffer(np.cumsum([0, *map(len, texts)]).astype(np.int32).tobytes(), np.int32)
    room = sum((len(text) + 1) // 2 for text in texts)
    tokens = Tokens(np.zeros(room, np.uint8), *(np.zeros(room, np.int32) for _ in range(3)))
    first, verdict = np.zeros(len(texts), np.int32), np.zeros(len(texts), np.uint8)
    read(data, offsets, tokens, first, verdict)
    found = []
    for row, begin in enumerate(first):
        end = tokens.after[begin] if verdict[row] == READ else begin
        lines = zip(*(part[begin:end].tolist() for part in tokens), strict=True)
        moved = [(kind, start - int(offsets[row]), size, after - int(begin)) for kind, start, size, after in lines]
        found.append((int(verdict[row]), moved))
    return found


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(ANY, min_size=1, max_size=8))
def test_the_kernel_and_the_exact_reader_agree_on_any_bytes(texts: list[bytes]) -> None:
    assert tokens_of(texts, read_all) == tokens_of(texts, read_exactly)


@pytest.mark.soak
@settings(max_examples=125_000, deadline=None)
@given(st.lists(ANY, min_size=8, max_size=8))
def test_the_kernel_and_the_exact_reader_agree_on_a_million_texts(texts: list[bytes]) -> None:
    assert tokens_of(texts, read_all) == tokens_of(texts, read_exactly)


def rebuilt(text: bytes, tokens: list[json_exact.JsonToken], at: int = 0) -> Any:
    """The Python value of a token."""
    kind, start, size, after = tokens[at]
    if kind == json_exact.OBJECT:
        found, at = {}, at + 1
        while at < after:
            name = json.loads(b'"' + text[tokens[at].start : tokens[at].start + tokens[at].size] + b'"')
            found[name] = rebuilt(text, tokens, at + 1)
            at = tokens[at + 1].after
        return found
    if kind == json_exact.ARRAY:
        items, at = [], at + 1
        while at < after:
            items.append(rebuilt(text, tokens, at))
            at = tokens[at].after
        return items
    quote = b'"' if kind in (json_exact.STRING, json_exact.ESCAPED) else b""
    return json.loads(quote + text[start : start + size] + quote)


@settings(max_examples=examples(300), deadline=None)
@given(json_texts())
def test_the_exact_reader_reads_what_pythons_json_reads(text: bytes) -> None:
    assert rebuilt(text, json_exact.read(text)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (b"", BROKEN), (b" ", BROKEN), (b"{", BROKEN), (b'{"a"}', BROKEN), (b'{"a":}', BROKEN), (b"[1,]", BROKEN),
        (b'{"a":1,}', BROKEN), (b"[1 2]", BROKEN), (b"01", MORE), (b"1.", BROKEN), (b".5", BROKEN), (b"1e", BROKEN),
        (b"+1", BROKEN), (b"NaN", BROKEN), (b"-Infinity", BROKEN), (b"nul", BROKEN), (b"'a'", BROKEN),
        (b'"\x01"', BROKEN), (b'"\n"', BROKEN), (b'"\\x"', BROKEN), (b'"\\u12g4"', BROKEN), (b'"\xff"', BROKEN),
        (b'"\xed\xa0\x80"', BROKEN), (b'"\\ud800"', BROKEN), (b'"\\udc00"', BROKEN), (b'"\\ud800\\u0041"', BROKEN),
        (b"\xef\xbb\xbf{}", BROKEN), (b"/**/{}", BROKEN), (b"{}{}", MORE), (b"{} x", MORE), (b"{}\x00", MORE),
        (b"[" * 5000, BROKEN), (b"[" * 5000 + b"]" * 5000, READ), (b' {"a" : [ ] } \r\n', READ), (b"-0.0E-0", READ),
        (b'"\x7f\\ud83d\\ude00"', READ),
    ],
)  # fmt: skip
def test_what_is_json_and_what_is_not(text: bytes, verdict: int) -> None:
    for read in (read_all, read_exactly):
        assert tokens_of([b'{"before":1}', text, b'{"behind":1}'], read)[0][0] == READ
        assert tokens_of([b'{"before":1}', text, b'{"behind":1}'], read)[1][0] == verdict
        assert tokens_of([b'{"before":1}', text, b'{"behind":1}'], read)[2][0] == READ


def test_a_message_that_is_null_is_not_read() -> None:
    from headrace.wire.tape import Tape

    assert Tape(pa.array([None, b"{}", b""], pa.binary())).root.tolist() == [-1, 0, -1]
