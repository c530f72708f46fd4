"""Canonical texts of packed and odd values in plain Python: the specification of the kernels of `canonical`."""

from __future__ import annotations

import base64
import binascii
import math
from decimal import Decimal

MOST_DIGITS = 20_000
"""The longest decimal that is read, in digits, and the largest scale."""
_MOST_BYTES = MOST_DIGITS * 5 // 12


def decimal_text(text: str, scale: int) -> str | None:
    """The digits of a whole number's bytes (big-endian, two's complement) in base64, with the point set.

    None where it is not base64, has no bytes, or is longer than any number that is read.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not data or len(data) > _MOST_BYTES or abs(scale) > MOST_DIGITS:
        return None
    # By way of Decimal, because Python's own limit for the digits of integers is below ours.
    return point_text(format(Decimal(int.from_bytes(data, "big", signed=True)), "f"), scale)


def point_text(number: str, scale: int) -> str:
    """A whole number's digits with the point set `scale` digits from the right."""
    if scale == 0 or (number == "0" and scale < 0):
        return number
    if scale < 0:
        return number + "0" * -scale
    sign, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def float_text(text: str) -> str | None:
    """The fewest digits that are the same binary number; None for what is none, or is beyond it."""
    if text in ("NaN", "Infinity", "-Infinity"):
        return text
    try:
        number = float(text)
    except ValueError:
        return None
    return repr(number) if math.isfinite(number) else None
