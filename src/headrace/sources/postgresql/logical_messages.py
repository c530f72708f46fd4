"""Logical messages (`pg_logical_emit_message`) as change rows."""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.changes import Operation
from headrace.errors import OptionError
from headrace.options import bare
from headrace.sources.postgresql.blocks import Block, Transactions
from headrace.sources.postgresql.change_rows import ITSELF, Rows
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.pgoutput import Message

_FIRST = 1
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class FoundMessages:
    """The logical messages of a block.

    Args:
        rows: a row for each.
        transactions: those of the block, and behind them one for each message that belongs to none.
        facts: what each says, by name and by the row's order.
    """

    rows: Rows
    transactions: Transactions
    facts: Mapping[str, Mapping[int, str]]


class LogicalMessages:
    """Which logical messages become rows.

    Those of the option 'signal_prefix' are signals and no rows.

    Args:
        settings: the source's options.
        start_boundary, end_boundary: of the window.
        capture_time: the time of messages that belong to no transaction.

    Raises:
        OptionError: both lists of prefixes are given, or one is not a regular expression.
    """

    def __init__(
        self, settings: PostgresSettings, start_boundary: int, end_boundary: int, capture_time: dt.datetime | None
    ) -> None:
        self._settings = settings
        self._start, self._end = start_boundary, end_boundary
        self._time = 0 if capture_time is None else (capture_time - _EPOCH) // dt.timedelta(microseconds=1)
        self._include = _patterns("message_prefix_include_list", settings.message_prefix_include_list)
        self._exclude = _patterns("message_prefix_exclude_list", settings.message_prefix_exclude_list)
        if self._include and self._exclude:
            raise OptionError(
                "Options 'message_prefix_include_list' and 'message_prefix_exclude_list' are both given.",
                remedy="Keep one of them.",
            )

    def read(self, block: Block, transactions: Transactions) -> FoundMessages:
        at: list[int] = []
        messages: list[Message] = []
        for number in block.of_kinds(b"M") if self._settings.messages else ():
            message = block.content(number)
            assert isinstance(message, Message)
            if self._is_of_window(message, int(transactions.commits[transactions.of[number]])) and self._keeps(message):
                at.append(number)
                messages.append(message)
        return self._rows(block, transactions, np.array(at, np.int64), messages)

    def _rows(
        self, block: Block, transactions: Transactions, at: np.ndarray, messages: Sequence[Message]
    ) -> FoundMessages:
        inside = np.array([message.transactional for message in messages], np.bool_)
        outside = at[~inside]
        more = len(transactions.commits)
        of = transactions.of[at].copy()
        of[~inside] = more + np.arange(len(outside))
        rows = Rows.at(
            at,
            ITSELF,
            Operation.MESSAGE,
            transactions=of,
            ordinals=np.where(inside, transactions.ordinals[at], _FIRST),
            lsns=block.messages.lsns[at],
            total=np.where(inside, 1, -1),
        )
        order = rows.order.tolist()
        facts = {
            "db": dict.fromkeys(order, self._settings.database),
            "prefix": {place: message.prefix for place, message in zip(order, messages, strict=True)},
            "content": {
                place: base64.b64encode(message.content).decode()
                for place, message in zip(order, messages, strict=True)
            },
            "transactional": {
                place: str(message.transactional).lower() for place, message in zip(order, messages, strict=True)
            },
        }
        if len(outside):
            transactions = replace(
                transactions,
                commits=np.concatenate([transactions.commits, block.messages.firsts[outside] - 1]),
                times=np.concatenate([transactions.times, np.full(len(outside), self._time)]),
                xids=np.concatenate([transactions.xids, np.full(len(outside), -1)]),
                previous=np.concatenate([transactions.previous, transactions.reached[outside]]),
            )
        return FoundMessages(rows, transactions, facts)

    def _is_of_window(self, message: Message, commit: int) -> bool:
        return commit >= self._start if message.transactional else self._start < message.lsn <= self._end

    def _keeps(self, message: Message) -> bool:
        prefix = message.prefix
        if self._settings.signal_prefix and prefix == self._settings.signal_prefix:
            return False
        if self._include:
            return any(pattern.fullmatch(prefix) for pattern in self._include)
        return not any(pattern.fullmatch(prefix) for pattern in self._exclude)


def _patterns(option: str, given: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    patterns = []
    for pattern in given:
        try:
            patterns.append(re.compile(bare(pattern), re.IGNORECASE))
        except re.error as error:
            raise OptionError(
                f"Option '{option}' has '{pattern}', which is not a regular expression ({error}).",
                remedy="Mend it; a backslash stands before a character that is meant as it is.",
                option=option,
            ) from error
    return tuple(patterns)
