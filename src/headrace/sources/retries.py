"""Trying again when a server is away for a moment or refuses for a reason that passes.

Only what is known to pass is tried again, a bounded number of times with growing pauses; everything else, and the last
failure, goes to the caller at once. Every further attempt opens a new connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation
from headrace.errors import HeadraceError
from headrace.passwords import NoPassword
from headrace.sources.connection import LostConnection
from headrace.sources.stream_options import RetrySettings

_LOG = logging.getLogger("headrace.sources")
_Answer = TypeVar("_Answer")
_PASSING = (LostConnection, NoPassword)


class Retries:
    """How often, and after which pauses, a query is repeated.

    Args:
        limit: the most attempts after the first; negative for no bound.
        first: seconds before the second attempt; each later pause is twice as long.
        longest: seconds that no pause exceeds.
        passing: the errors that pass.
    """

    def __init__(
        self,
        limit: int,
        first: float,
        longest: float,
        passing: tuple[type[HeadraceError], ...] = _PASSING,
    ) -> None:
        self._passing = passing
        self._limit = limit
        self._first = first
        self._longest = longest

    @classmethod
    def of(cls, settings: RetrySettings, *others: type[HeadraceError]) -> Retries:
        """As the options say.

        Args:
            settings: the source's options.
            others: errors that pass beside a lost connection and a password that can't be had.
        """
        return cls(
            settings.errors_max_retries,
            settings.errors_retry_delay_initial_ms / 1000,
            settings.errors_retry_delay_max_ms / 1000,
            (*_PASSING, *others),
        )

    def call(self, ask: Callable[[], _Answer]) -> _Answer:
        """The answer to a query, which is repeated as long as its failures pass.

        Args:
            ask: opens what connections it needs, and can be called again after it failed.

        Raises:
            HeadraceError: what the last attempt raised.
        """
        failures = 0
        while True:
            try:
                return ask()
            except self._passing as error:
                failures += 1
                self._pause(error, failures)

    def rows(self, read: Callable[[], Iterator[pa.RecordBatch]], *, same: bool) -> Iterator[pa.RecordBatch]:
        """Rows that are read again from their beginning when a reading fails, without those that were given already.

        An attempt that gave new rows is progress, after which failures count from one again.

        Args:
            read: begins a reading.
            same: whether every reading gives the same rows in the order of their positions. Where that is not so, as
                with rows of a live table, nothing is read again once data was given.

        Raises:
            HeadraceError: what the last attempt raised.
        """
        given = _Given()
        failures = 0
        while True:
            before = given.rows
            known = given.upto
            try:
                with closing(read()) as batches:  # type: ignore[type-var]
                    for batch in batches:
                        fresh = given.add(batch, known) if batch.num_rows else batch
                        if fresh.num_rows:
                            yield fresh
                return
            except self._passing as error:
                if given.upto is not None and not same:
                    raise
                failures = 1 if given.rows > before else failures + 1
                self._pause(error, failures)

    def _pause(self, error: HeadraceError, failures: int) -> None:
        if 0 <= self._limit < failures:
            raise error
        seconds = min(self._longest, self._first * 2 ** min(failures - 1, 30))
        bound = "" if self._limit < 0 else f" of {self._limit}"
        _LOG.warning("%s Trying again in %.1f seconds (%d%s).", error, seconds, failures, bound)
        time.sleep(seconds)


class _Given:
    """What a reading gave before it failed.

    Known by positions and not by number, because changes may have been cleaned before they are read again.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.upto: str | None = None
        """The position of the last row of data."""
        self._announced: set[tuple[str, str, str]] = set()

    def add(self, batch: pa.RecordBatch, known: str | None) -> pa.RecordBatch:
        """The rows of a batch that earlier attempts, which came to the position `known`, did not give."""
        op = batch.column("op")[0].as_py()
        if op in (Operation.SCHEMA.value, Operation.GAP.value) and batch.num_rows == 1:
            # Single rows that come before or after the data, whatever their position.
            announced = (op, str(batch.column("table")[0].as_py()), str(batch.column("position")[0].as_py()))
            fresh = batch.slice(0, 0) if announced in self._announced else batch
            self._announced.add(announced)
        else:
            position = batch.column("position")
            fresh = batch if known is None else batch.filter(pc.greater(position, known))
            if fresh.num_rows:
                self.upto = fresh.column("position")[fresh.num_rows - 1].as_py()
        self.rows += fresh.num_rows
        return fresh
