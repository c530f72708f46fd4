"""A block of messages of pgoutput, and the transactions that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.errors import FormatError
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.pgoutput import EPOCH, Content, Origin, XLogData, read
from headrace.wire import pgoutput_kernels as kernels
from headrace.wire.pgoutput_kernels import Messages
from headrace.wire.spans import Array

_KNOWN = np.zeros(256, np.bool_)
_KNOWN[[*b"kBCORYIUDTM"]] = True
IS_CHANGE = np.zeros(256, np.bool_)
"""Which letters are those of changed rows."""
IS_CHANGE[[*b"IUD"]] = True
_TRANSACTIONAL = 1


@dataclass(frozen=True)
class Block:
    """Messages of one window, in their order.

    Args:
        payloads: as they came.
        data: all of them, one after another.
        starts: where each begins there, and where the last one ends.
        messages: what they begin with.
    """

    payloads: Sequence[bytes]
    data: Array
    starts: Array
    messages: Messages

    @classmethod
    def of(cls, payloads: Sequence[bytes], sizes: Array, end_boundary: int) -> Block:
        """The messages up to the first transaction that is not of the window.

        Args:
            payloads: in their order.
            sizes: how many bytes each has.
            end_boundary: where the window ends.

        Raises:
            FormatError: one of them is cut off, or of no known kind.
            CaptureError: one is of a protocol that was not asked for.
        """
        count = len(payloads)
        data = np.frombuffer(b"".join(payloads), np.uint8)
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        messages = Messages(
            np.zeros(count, np.uint8),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.uint8),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        bad = int(kernels.scan(data, starts, messages))
        after = np.flatnonzero((messages.kinds == kernels.BEGIN) & (messages.firsts >= end_boundary))
        upto = int(after[0]) if len(after) else count
        unknown = np.flatnonzero(~_KNOWN[messages.kinds[: count if bad < 0 else bad]])
        if len(unknown):
            bad = int(unknown[0])
        if 0 <= bad < upto:
            read(payloads[bad])
            raise FormatError(f"The message of pgoutput at {lsn.to_server(int(messages.lsns[bad]))} is malformed.")
        return cls(payloads[:upto], data, starts[: upto + 1], Messages(*(column[:upto] for column in messages)))

    def __len__(self) -> int:
        return len(self.payloads)

    def of_kinds(self, letters: bytes) -> list[int]:
        """The numbers of the messages of some kinds."""
        kinds = self.messages.kinds
        is_one = kinds == letters[0]
        for letter in letters[1:]:
            is_one |= kinds == letter
        numbers: list[int] = np.flatnonzero(is_one).tolist()
        return numbers

    def content(self, number: int) -> Content:
        """What one message says, by the exact reader."""
        parsed = read(self.payloads[number])
        assert isinstance(parsed, XLogData)
        return parsed.content


@dataclass(frozen=True)
class Transaction:
    """A transaction that may go on in the next block.

    Args:
        commit: the LSN of its commit record.
        time: when it was committed, in microseconds since 1970.
        xid: its number.
        previous: where the transaction before ended.
        rows: how many rows of it came.
        origin: where it was first committed, if elsewhere.
    """

    commit: int
    time: int
    xid: int
    previous: int
    rows: int = 0
    origin: Origin | None = None


@dataclass(frozen=True)
class Between:
    """What is known between two blocks.

    Args:
        previous: where the last transaction ended.
        open: the one that goes on; None for none.
    """

    previous: int
    open: Transaction | None = None


@dataclass(frozen=True)
class Transactions:
    """The transactions of a block. The first is the one that goes on from the block before, or stands for none.

    Args:
        of: the number of each message's transaction.
        ordinals: how many rows of its transaction came, the message included.
        reached: where the last transaction before each message ended.
        commits, times, xids, previous: see `Transaction`.
        origins: those of transactions that have one.
        between: what is known after the block.
    """

    of: Array
    ordinals: Array
    reached: Array
    commits: Array
    times: Array
    xids: Array
    previous: Array
    origins: dict[int, Origin]
    between: Between

    @classmethod
    def in_block(cls, block: Block, before: Between) -> Transactions:
        """The transactions of a block, after what came before.

        Raises:
            FormatError: rows stand outside of a transaction, or one begins inside of another.
        """
        kinds, messages = block.messages.kinds, block.messages
        is_begin, is_commit = kinds == kernels.BEGIN, kinds == kernels.COMMIT
        is_row = IS_CHANGE[kinds] | (kinds == ord("T"))
        is_row |= (kinds == kernels.MESSAGE) & (messages.tags & _TRANSACTIONAL == 1)
        begun, ended = np.cumsum(is_begin), np.cumsum(is_commit)
        depth = begun - ended + (before.open is not None)
        wrong = np.flatnonzero((depth < 0) | (depth > 1) | (is_row & (depth != 1)))
        if len(wrong):
            position = lsn.to_server(int(messages.lsns[wrong[0]]))
            raise FormatError(f"The message of pgoutput at {position} is not inside of one transaction.")
        going_on = before.open or Transaction(0, 0, -1, before.previous)
        begins = np.flatnonzero(is_begin)
        ends = np.concatenate([[before.previous], messages.seconds[is_commit]])
        counted = np.cumsum(is_row)
        commits = np.concatenate([[going_on.commit], messages.firsts[begins]])
        closes = np.flatnonzero(is_commit)
        if not np.array_equal(messages.firsts[closes], commits[begun[closes]]):
            raise FormatError("The log ends a transaction with another commit than it began with.")
        first_rows = np.concatenate([[-going_on.rows], counted[begins]])
        origins = {} if going_on.origin is None else {0: going_on.origin}
        for number in block.of_kinds(b"O"):
            origin = block.content(number)
            assert isinstance(origin, Origin)
            origins[int(begun[number])] = origin
        transactions = cls(
            begun,
            counted - first_rows[begun],
            ends[ended],
            commits,
            np.concatenate([[going_on.time], messages.seconds[begins] + EPOCH]),
            np.concatenate([[going_on.xid], messages.oids[begins]]),
            np.concatenate([[going_on.previous], ends[ended[begins]]]),
            origins,
            before,
        )
        return replace(transactions, between=transactions._between_after(int(ends[-1]), bool(len(block) and depth[-1])))

    def _between_after(self, previous: int, goes_on: bool) -> Between:
        if not len(self.of):
            return self.between
        if not goes_on:
            return Between(previous)
        last = len(self.commits) - 1
        return Between(
            previous,
            Transaction(
                int(self.commits[last]),
                int(self.times[last]),
                int(self.xids[last]),
                int(self.previous[last]),
                int(self.ordinals[-1]),
                self.origins.get(last),
            ),
        )
