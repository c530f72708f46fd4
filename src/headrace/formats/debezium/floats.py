"""Binary numbers in Java's spelling: the fewest digits, with a point, and an exponent beyond 0.001 and 10,000,000."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from headrace.wire.typed_exact import value_of

_WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def java_texts(texts: pa.StringArray, *, single: bool) -> list[str | None]:
    """The JSON of the numbers that texts mean; None for what is none.

    Args:
        texts: the texts.
        single: whether numbers have 32 bits.
    """
    kind = pa.float32() if single else pa.float64()
    values = pa.array([value_of(text, kind) for text in texts.to_pylist()], kind)
    # Arrow writes the fewest digits, too.
    shortest = values.cast(pa.string()).to_pylist()
    return [
        None if text is None or number is None else _WORDS.get(text) or _java(text, number)
        for text, number in zip(shortest, values.to_pylist(), strict=True)
    ]


def _java(text: str, number: float) -> str:
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    figures = "".join(map(str, digits)).rstrip("0")
    minus = "-" if sign else ""
    if not figures:
        return f"{minus}0.0"
    if len(figures) == 1:
        # Where one digit is enough, Java takes the nearest number of two.
        _, digits, exponent = Decimal(f"{number:.1e}").as_tuple()
        assert isinstance(exponent, int)
        figures = "".join(map(str, digits)).rstrip("0")
    # The number is 0.figures times ten to the power of `point`.
    point = len(digits) + exponent
    if -3 < point <= 7:
        whole, fraction = figures[: max(point, 0)].ljust(point, "0"), figures[max(point, 0) :]
        return f"{minus}{whole or '0'}.{'0' * max(-point, 0)}{fraction or '0'}"
    return f"{minus}{figures[0]}.{figures[1:] or '0'}E{point - 1}"
