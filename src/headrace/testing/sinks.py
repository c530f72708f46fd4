"""What every sink does, whatever its target: a batch written twice is a batch written once, or is said to repeat."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import SinkError
from headrace.formats.base import MESSAGE_DDL
from headrace.sinks.base import BatchId, Sink
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, pos, table
from headrace.testing.contract import Contract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = table("t", id="string", v="string")


class SinkContract(Contract):
    """The suite of any sink. A subclass gives two hooks; its test file, or a `conftest.py`, has the fixture `spark`.

    A sink that keeps tables equal to a source runs `TableSinkContract` instead, which asks for much more.
    """

    @abstractmethod
    def sink(self, folder: Path) -> Sink:
        """A new sink; two sinks of one folder have the same target.

        Args:
            folder: a folder of the test's own, in which the target may be, or by whose name it is known.
        """

    @abstractmethod
    def content(self, folder: Path) -> list[str]:
        """What rests in the target, in its order; nothing where there is no target yet.

        For a sink of change rows, the column `v` of each row; for a sink of messages, each value as text.
        """

    def test_check_makes_nothing(self, tmp_path: Path) -> None:
        self.sink(tmp_path).check()
        assert self.content(tmp_path) == []

    def test_a_batch_rests_in_the_target(self, spark: SparkSession, tmp_path: Path) -> None:
        self._write(spark, tmp_path, 0, "a", "b", "c")
        assert sorted(self.content(tmp_path)) == ["a", "b", "c"]

    def test_a_batch_follows_another(self, spark: SparkSession, tmp_path: Path) -> None:
        self._write(spark, tmp_path, 0, "a", "b")
        self._write(spark, tmp_path, 1, "c")
        assert sorted(self.content(tmp_path)) == ["a", "b", "c"]

    def test_what_happened_to_one_row_is_written_in_its_order(self, spark: SparkSession, tmp_path: Path) -> None:
        values = [f"{number:02}" for number in range(20)]
        sink = self.sink(tmp_path)
        sink.write(self._rows(spark, sink, 0, values, one_key=True), BatchId("p", "checkpoint", 0, f"{0:016x}"))
        content = self.content(tmp_path)
        # Where only the newest row is kept, that is the last one.
        assert content in (values, values[-1:])

    def test_an_empty_batch_changes_nothing(self, spark: SparkSession, tmp_path: Path) -> None:
        self._write(spark, tmp_path, 0, "a")
        self._write(spark, tmp_path, 1)
        assert self.content(tmp_path) == ["a"]

    def test_a_batch_written_again_is_there_once_or_repeats_itself(self, spark: SparkSession, tmp_path: Path) -> None:
        for _ in range(2):
            guarantee = self._write(spark, tmp_path, 0, "a", "b")
        content = self.content(tmp_path)
        assert set(content) == {"a", "b"}
        if guarantee == "exactly-once":
            assert len(content) == 2

    def test_an_older_batch_changes_nothing_where_each_is_there_once(self, spark: SparkSession, tmp_path: Path) -> None:
        # A sink that knows its last batch only stops; the checkpoint was set back.
        if self.sink(tmp_path).guarantee != "exactly-once":
            pytest.skip("it promises at-least-once")
        self._write(spark, tmp_path, 0, "a")
        self._write(spark, tmp_path, 1, "b")
        with contextlib.suppress(SinkError):
            self._write(spark, tmp_path, 0, "a")
        assert sorted(self.content(tmp_path)) == ["a", "b"]

    def test_another_batch_under_the_same_number_stops_where_each_is_there_once(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        if self.sink(tmp_path).guarantee != "exactly-once":
            pytest.skip("it promises at-least-once")
        self._write(spark, tmp_path, 7, "a")
        with pytest.raises(SinkError) as caught:
            self._write(spark, tmp_path, 7, "b", offsets="f" * 16)
        assert caught.value.remedy
        assert self.content(tmp_path) == ["a"]

    def test_a_checkpoint_does_not_write_into_the_target_of_another(self, spark: SparkSession, tmp_path: Path) -> None:
        self._write(spark, tmp_path, 3, "a")
        with pytest.raises(SinkError) as caught:
            self._write(spark, tmp_path, 0, "b", checkpoint="new")
        assert caught.value.remedy
        assert self.content(tmp_path) == ["a"]

    def test_two_sinks_of_one_target_say_so(self, tmp_path: Path) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        for folder in (here, there):
            folder.mkdir()
        same = self.sink(here).places()
        assert same
        assert same & self.sink(here).places()
        assert not same & self.sink(there).places()

    def _write(
        self,
        spark: SparkSession,
        folder: Path,
        number: int,
        *values: str,
        offsets: str = "",
        checkpoint: str = "checkpoint",
    ) -> str:
        """Write a batch with these values by a new sink; gives what the sink promises."""
        sink = self.sink(folder)
        rows = self._rows(spark, sink, number, values)
        sink.write(rows, BatchId("p", checkpoint, number, offsets or f"{number:016x}"))
        return sink.guarantee

    def _rows(
        self, spark: SparkSession, sink: Sink, number: int, values: Sequence[str], *, one_key: bool = False
    ) -> DataFrame:
        keys = ["1" if one_key else f"{number}-{value}" for value in values]
        places = [pos(100 * (number + 1) + n) for n in range(len(values))]
        if sink.takes == "messages":
            lines = [
                ("t", None, key.encode(), value.encode(), None, place)
                for key, value, place in zip(keys, values, places, strict=True)
            ]
            return local_rows(spark, lines, MESSAGE_DDL)
        batch, row = Batch(TABLE), None
        for key, value, place in zip(keys, values, places, strict=True):
            before = row if one_key else None
            row = {"id": key, "v": value}
            batch.add("u" if before else "c", TABLE, place, row, before)
        rows: DataFrame = batch.rows(spark)
        return rows
