"""Binary numbers in Java's text form: the fewest digits, with a point, and an exponent beyond 0.001 and 10,000,000."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire.json_columns import FLOAT, JsonColumn, JsonColumns
from headrace.wire.json_rows import Cells
from headrace.wire.spans import Array
from headrace.wire.typed_exact import value_of

_COLUMN = JsonColumns([("", [JsonColumn("", "", FLOAT, 17)], "")])
_WORDS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def java_texts(texts: pa.StringArray, *, single: bool) -> list[str | None]:
    """The JSON of the numbers that texts mean; None for what is none.

    Args:
        texts: the texts.
        single: whether numbers have 32 bits.
    """
    values = _values(texts, pa.float32() if single else pa.float64())
    # Arrow writes the fewest digits, too.
    shortest, present = values.cast(pa.string()), np.ones(len(values), np.bool_)

    def written(_: int, odd: pa.StringArray, rows: Array) -> list[str]:
        numbers = values.take(pa.array(rows)).to_pylist()
        return [_WORDS.get(text) or java_text(text, n) for text, n in zip(odd.to_pylist(), numbers, strict=True)]

    found: list[str] = Cells.of_columns(_COLUMN, [shortest], present, None).json(written).to_pylist()
    return [None if text == "null" else text for text in found]


def _values(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        values = texts.cast(kind)
    except pa.ArrowInvalid:
        values = None
    if values is None or pc.any(pc.is_inf(values)).as_py():
        values = pa.array([value_of(text, kind) for text in texts.to_pylist()], kind)
    return values


def java_text(text: str, number: float) -> str:
    """What Java writes for a finite number, from the fewest digits that tell it: the specification of the kernel."""
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
