"""What the server prints of single values, as canonical texts.

The server prints as a session's settings say; all sessions have those of `connection`. Values that no calendar type
holds (infinity, years before 1 and after 9999) stay as they are printed.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text


def booleans(values: pa.StringArray) -> pa.StringArray:
    """`t` and `f`."""
    return pc.if_else(pc.equal(values, "t"), "true", "false")


def money(values: pa.StringArray) -> pa.StringArray:
    """`-$1,234.50` as the locale C has it."""
    return pc.replace_substring(pc.replace_substring(values, "$", ""), ",", "")


def floats(values: pa.StringArray, logical: LogicalType) -> pa.StringArray:
    """The server has the fewest digits as well, but leaves `.0` out, and writes other exponents."""
    # Of numbers near 0.0001 the exponent depends on the width.
    plain = pc.match_substring_regex(values, r"^-?([1-9][0-9]*|0)(\.([1-9][0-9]*|0[1-9][0-9]*|00[1-9][0-9]*))?$")
    whole = pc.and_(plain, pc.invert(pc.match_substring(values, ".")))
    texts = pc.if_else(whole, pc.binary_join_element_wise(values, ".0", ""), values)
    odd = pc.invert(plain).fill_null(False)
    if not pc.any(odd).as_py():
        return texts
    kind = pa.float32() if logical.kind == "float32" else pa.float64()
    return pc.replace_with_mask(texts, odd, arrow_text(pc.cast(values.filter(odd), kind), logical))
