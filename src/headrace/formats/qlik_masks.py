"""Qlik's changeMask and columnMask: hexadecimal texts, one bit for each column by ordinal.

| `mask_byte_order` | meaning of `0202` with 10 columns |
|---|---|
| `big` | a number with its most significant byte first: bits 1 and 9, columns 2 and 10 |
| `little` | the least significant byte first: the bytes are read the other way round |
| `auto` | `big`, where not only `little` fits |

A reading does not fit that sets bits for more columns than there are or, in an update with both images, names other
columns than those that differ. Bit 0 is the column with ordinal 1. Columns beyond the mask's last byte were added
behind the source, and the mask does not speak of them. Odd lengths (a zero is missing in front) and lower case are
accepted.
"""

from __future__ import annotations

from headrace.changes.letter_case import upper
from headrace.formats.debezium_texts import let

ORDERS = ("big", "little", "auto")


def digits(mask: str) -> str:
    """Spark SQL for a mask with whole bytes in upper case; null for an empty text, which says nothing."""
    return upper(f"if(length({mask}) % 2 = 1, concat('0', {mask}), nullif({mask}, ''))")


def malformed(mask: str) -> str:
    """Spark SQL: whether a mask (not null) is no hexadecimal text."""
    return f"translate({upper(mask)}, '0123456789ABCDEF', '') <> ''"


def bit(mask: str, ordinal: str, little: str) -> str:
    """Spark SQL for the bit of an ordinal: 0 or 1, null beyond the mask.

    Args:
        mask: SQL for `digits`.
        ordinal: SQL for an integer from 1.
        little: SQL for whether the first byte is the least significant one.
    """
    nibble = f"(({ordinal} - 1) div 4)"
    # Little: bytes from the left, but the digits inside a byte still from the right.
    from_left = f"(2 * (({ordinal} - 1) div 8) + 2 - {nibble} % 2)"
    place = f"if({little}, {from_left}, length({mask}) - {nibble})"
    digit = f"(instr('0123456789ABCDEF', substr({mask}, cast({place} as int), 1)) - 1)"
    return f"if({nibble} < length({mask}), shiftright({digit}, cast(({ordinal} - 1) % 4 as int)) & 1, null)"


def named(names: str, mask: str, little: str) -> str:
    """Spark SQL for the names whose bit is set, in order of ordinals; `names` is SQL for an array by ordinal."""
    return f"filter({names}, (n, i) -> n is not null and {bit(mask, '(i + 1)', little)} = 1)"


def above(mask: str, count: str, little: str) -> str:
    """Spark SQL: whether the mask sets a bit for an ordinal above the number of columns."""
    ordinals = f"sequence({count} + 1, greatest({count} + 1, 4 * length({mask})))"
    return f"coalesce(exists({ordinals}, o -> {bit(mask, 'o', little)} = 1), false)"


def little(order: str, *, change: str, column: str, names: str, differing: str) -> str:
    """Spark SQL for whether a message's masks have the least significant byte first.

    Args:
        order: the option, one of `ORDERS`.
        change, column: SQL for the masks' `digits`; may be null.
        names: SQL for the names by ordinal.
        differing: SQL for the names of the columns that differ between two images, in any order; null without them.
    """
    if order != "auto":
        return "true" if order == "little" else "false"

    def unfit(of: str) -> str:
        masks = " + ".join(
            f"if({mask} is not null and {above(mask, f'size({names})', of)}, 2, 0)" for mask in (change, column)
        )
        other = f"{differing} is not null and {change} is not null and array_sort({named(names, change, of)}) <> "
        return f"({masks} + if({other} array_sort({differing}), 1, 0))"

    longest = f"greatest(coalesce(length({change}), 0), coalesce(length({column}), 0))"
    pair = f"named_struct('b', {unfit('false')}, 'l', {unfit('true')})"
    return f"if({longest} <= 2, false, {let(pair, 'unfit', 'unfit.l < unfit.b')})"
