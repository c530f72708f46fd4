"""Places in the binary log of MySQL and MariaDB.

A position is a byte of a file of the log. The files have numbers, which count on. After a failover another server has
other files, so an epoch stands in front: it counts the servers that a pipeline has followed.

A transaction is at the position where its first event begins: its GTID event, or its BEGIN where the log has no GTIDs.
A boundary is a position where such a transaction of events begins or where the log ends. An offset's `commit` is the
byte before a boundary: it has every transaction that begins there or before. So the next read begins one byte further,
and a batch (start, end] has the transactions with start < position <= end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

FIRST = 4
"""Where the first event of a file begins, after the four bytes that say what the file is."""
_TEXT = re.compile(r"(\d{4}):(\d{10}):(\d{20})", re.ASCII)
_FILE_TEXT = len("eeee:ffffffffff:")
_NAME = re.compile(r"(.+)\.(\d+)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, order=True)
class BinlogPosition:
    """A byte of the log; positions compare as the log goes on.

    Args:
        epoch: how many servers the pipeline followed before this one; 9,999 at the most.
        file: the number in the file's name; 10 digits at the most.
        position: the byte in the file, counted from 0. It may be more than the four bytes of an event's header can say.

    Raises:
        ValueError: a part is negative or too long for `text`.
    """

    epoch: int
    file: int
    position: int

    def __post_init__(self) -> None:
        for value, digits in ((self.epoch, 4), (self.file, 10), (self.position, 20)):
            if not 0 <= value < 10**digits:
                raise ValueError(f"not a place in the binary log: {self.epoch}, {self.file}, {self.position}")

    @property
    def text(self) -> str:
        """The form of offsets and change rows, `eeee:ffffffffff:pppppppppppppppppppp`; it sorts as positions do."""
        return f"{self.epoch:04}:{self.file:010}:{self.position:020}"

    @classmethod
    def of(cls, text: str) -> Self:
        """The position of a text.

        Raises:
            ValueError: it is none.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a place in the binary log: {text!r}")
        return cls(int(match[1]), int(match[2]), int(match[3]))

    def at(self, position: int) -> Self:
        """Another byte of the same file."""
        return replace(self, position=position)

    def texts_at(self, positions: Sequence[int]) -> list[str]:
        """The texts of other bytes of the same file."""
        file = self.text[:_FILE_TEXT]
        return [f"{file}{position:020}" for position in positions]


ZERO = BinlogPosition(0, 0, 0).text
"""The commit before all others."""


def boundary(commit: str) -> BinlogPosition:
    """Where reading goes on after an offset's commit: transactions that begin here or later."""
    position = BinlogPosition.of(commit)
    return position.at(position.position + 1)


def commit_before(boundary: BinlogPosition) -> str:
    return boundary.at(boundary.position - 1).text


def in_epoch_of(commit: str, other: str) -> str:
    """A commit of the server that another one is of, where that was not known."""
    return replace(BinlogPosition.of(commit), epoch=BinlogPosition.of(other).epoch).text


def file_name(base: str, number: int) -> str:
    """The name of a file of the log, as the server has it: `mysql-bin.000042`."""
    return f"{base}.{number:06}"


def file_of(name: str) -> tuple[str, int]:
    """The base name and the number of a file of the log.

    Raises:
        ValueError: the name has no number.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"not a file of the binary log: {name!r}")
    return match[1], int(match[2])
