"""No bytes make a decoder raise or lose a message: each gives change rows, an error row, or is said to be no event.

Samples are cut, flipped, doubled and mixed by a seed that is printed; some messages are bytes out of nowhere. The small
run is part of the suite, the large one (100,000 messages for each format) of the soak.
"""

from __future__ import annotations

import random
import secrets
from typing import Any

import pytest
from codec_rows import changes_of_messages
from samples import formats_with_samples, registry_of, samples_of

from headrace.formats.codec import KAFKA_COLUMNS, ArrowFormat
from headrace.formats.convert import format_named
from headrace.registry import find
from headrace.spark.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
WORDS = [
    b"null", b"-1", b"1e999", b"99999999999999999999999999", b'"\\ud800"', b"[]", b"{}", b'"', b"{", b"}", b"\x00",
    b"\xff\xfe", b"true", b"0.1", b":", b",", b'"op"', b'"schema"', b'"payload"', b"2024-02-30", b"\xc0\x80",
]  # fmt: skip


def mutated(value: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """The bytes with one to three things wrong."""
    data = value
    for _ in range(rng.randrange(1, 4)):
        at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        flipped = bytes([data[at] ^ (1 << rng.randrange(8))]) if at < len(data) else b""
        data = rng.choice(
            [
                data[:at],
                data[:at] + data[min(end, at + 8) :],
                data[:at] + rng.choice(WORDS) + data[at:],
                data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
                data[:end] + data[at:],
                data[:at] + rng.choice(others)[at:],
                data[:at] + flipped + data[at + 1 :],
            ]
        )
    return data


def messages(format: str, count: int, seed: int) -> list[tuple[Any, ...]]:
    rng = random.Random(seed)
    samples = [sample.message for sample in samples_of(format)]
    values = [m[5] for m in samples if m[5]]
    keys = [m[4] for m in samples if m[4]] or [b'{"id":1}']
    made = []
    for number in range(count):
        _, _, _, _, key, value, headers = rng.choice(samples)
        if rng.random() < 0.05:
            value = rng.randbytes(rng.choice([0, 1, 5, 48, 200]))
        elif value is not None:
            value = mutated(value, rng, values)
        if rng.random() < 0.1:
            key = mutated(rng.choice(keys), rng, keys)
        if rng.random() < 0.02:
            headers = [("h", None), ("", b"\xff")]
        made.append(("a.b.c", 0, number, None, key, value, headers))
    return made


def account_for(request: pytest.FixtureRequest, format: str, count: int, seed: int) -> None:
    """Decode, with every column computed, and look for each message. Spark is asked only where the format needs it."""
    options: dict[str, Any] = {}
    if (registry := registry_of(format)) is not None:
        options = {"registry": registry, "framing": "confluent"}
    made = messages(format, count, seed)
    if issubclass(find("format", format), ArrowFormat):
        rows = changes_of_messages(format, made, **options)
        found = {row["offset"] for row in rows.column("message").to_pylist()}
    else:
        spark = request.getfixturevalue("spark")
        frame = local_rows(spark, made, DDL).repartition(2).cache()
        decoded = format_named(format, options).decode(frame)
        sized = decoded.selectExpr("message.offset as o", "length(to_json(struct(*))) as size")
        found = {row.o for row in sized.groupBy("o").count().collect()}
        frame.unpersist()
    missing = sorted(set(range(count)) - found)
    assert not missing, f"seed {seed}: {len(missing)} messages gave no row, the first is {missing[0]}"


@pytest.mark.parametrize("format", formats_with_samples())
def test_no_bytes_raise_or_vanish(request: pytest.FixtureRequest, format: str) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    account_for(request, format, 1_000, seed)


@pytest.mark.soak
@pytest.mark.parametrize("format", formats_with_samples())
def test_no_bytes_raise_or_vanish_in_a_hundred_thousand_messages(request: pytest.FixtureRequest, format: str) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")
    for part in range(10):
        account_for(request, format, 10_000, seed + part)
