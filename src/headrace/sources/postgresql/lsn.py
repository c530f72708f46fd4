"""Places in PostgreSQL's write-ahead log.

An LSN is a byte position of 64 bits. The server writes it as `16/B374D848`; offsets and positions have 16 lower-case
hex digits, which sort as text. An offset's `commit` is the last byte that it covers: it has every transaction whose
commit record begins there or before. So the next read begins one byte further, at the boundary.
"""

from __future__ import annotations

_PAGE_BYTES = 8192
_PAGE_HEADERS = (24, 40)
"""Bytes of the header of a page, and of the first page of a file."""
ZERO = f"{0:016x}"
"""The commit before all others."""


def to_text(lsn: int) -> str:
    return f"{lsn:016x}"


def number(text: str) -> int:
    """The LSN of an offset's or a position's commit."""
    return int(text, 16)


def to_server(lsn: int) -> str:
    """An LSN as the server writes it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def of_server(text: str) -> int:
    """The LSN that the server writes as `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def written_up_to(inserted: str) -> int:
    """The boundary up to which the log is written, by what the server says of `pg_current_wal_insert_lsn()`.

    Where the last record ends with its page, the server names the position after the next page's header, which is not
    on disk before something is written there. No record begins in between, so nothing is left out.
    """
    position = of_server(inserted)
    header = position % _PAGE_BYTES
    return position - header if header in _PAGE_HEADERS else position


def boundary(commit: str) -> int:
    """Where reading goes on after an offset's commit: transactions whose commit record begins here or later."""
    return number(commit) + 1


def commit_before(boundary: int) -> str:
    return to_text(boundary - 1)
