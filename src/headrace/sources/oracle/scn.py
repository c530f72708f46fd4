"""System change numbers: integers of up to 20 digits, as texts of one width that compare as the numbers do.

RS_ID, which orders records of one redo thread, is brought into such a form too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 20
ZERO = "0" * WIDTH
_RS_ID = re.compile(r"(?:0x)?([0-9a-f]+)\.([0-9a-f]+)\.([0-9a-f]+)", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class ScnRange:
    """The SCNs (low, high]."""

    low: int
    high: int

    def to_json(self) -> list[int]:
        """JSON values, for offsets and slices."""
        return [self.low, self.high]

    @classmethod
    def from_json(cls, data: Sequence[int]) -> ScnRange:
        """Read `to_json`'s form back."""
        low, high = data
        return cls(low, high)


def to_text(scn: int) -> str:
    """The text of an SCN.

    Raises:
        ValueError: it is negative, or longer than any SCN can be.
    """
    if scn < 0 or len(str(scn)) > WIDTH:
        raise ValueError(f"not an SCN: {scn}")
    return f"{scn:0{WIDTH}}"


def number(text: str) -> int:
    return int(text)


def rs_order(rs_id: str) -> str:
    """An RS_ID (` 0x00034d.00006ac9.01f8 `) as text that sorts as the records do.

    Raises:
        ValueError: it is none.
    """
    if len(rs_id) == 23 and rs_id[:2] == "0x" and rs_id[8] == rs_id[17] == ".":
        # As LogMiner prints it in nearly all cases.
        return f"00{rs_id[2:8]}{rs_id[9:17]}{rs_id[18:]}"
    match = _RS_ID.fullmatch(rs_id.strip())
    if match is None:
        raise ValueError(f"not an RS_ID: {rs_id!r}")
    return f"{match[1].lower():0>8}{match[2].lower():0>8}{match[3].lower():0>4}"
