"""Log sequence numbers: virtual log file (4 bytes), block (4 bytes), slot (2 bytes), as in SQL Server's log."""

from __future__ import annotations

_LAST_BLOCK = 0x000F_FFFF
_SLOTS = 0x0070


def to_bytes(lsn: bytes | str) -> bytes:
    """Ten bytes of `00000027:00000758:0005`, of hex digits with or without `0x`, or of themselves.

    Raises:
        ValueError: it is not an LSN.
    """
    if isinstance(lsn, str):
        lsn = bytes.fromhex(lsn.replace(":", "").removeprefix("0x"))
    if len(lsn) != 10:
        raise ValueError(f"an LSN has 10 bytes, not {len(lsn)}")
    return lsn


def to_text(lsn: bytes) -> str:
    """`00000027:00000758:0005`."""
    digits = lsn.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def made(file: int, block: int, slot: int) -> bytes:
    """Ten bytes of the three parts."""
    return file.to_bytes(4, "big") + block.to_bytes(4, "big") + slot.to_bytes(2, "big")


def parts(lsn: bytes) -> tuple[int, int, int]:
    return int.from_bytes(lsn[:4], "big"), int.from_bytes(lsn[4:8], "big"), int.from_bytes(lsn[8:], "big")


def after(lsn: bytes) -> bytes:
    """The LSN of the next record of a transaction: the next slot, or the next block when this one is full."""
    file, block, slot = parts(lsn)
    return made(file, block, slot + 1) if slot < _SLOTS else next_block(lsn, 0x30)


def next_block(lsn: bytes, blocks: int = 8) -> bytes:
    """The first record of a later block, in the next virtual log file when this one is full."""
    file, block, _ = parts(lsn)
    block += blocks
    return made(file + 1, 0x10, 1) if block > _LAST_BLOCK else made(file, block, 1)
