"""Where mined ranges rest until their transactions are delivered: one Parquet file of rows and one index per range.

A range is named by its SCNs and by what was mined of it, so whoever mines it again writes the same. The index is
written last and whole, so that a range is there when its index is. Everything here can be lost: it is mined again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace.errors import OptionError
from headrace.sources.oracle import scn
from headrace.sources.oracle.range_index import RangeIndex, joined_index
from headrace.sources.oracle.scn import ScnRange

ROW_GROUP = 50_000
ROWS = pa.schema(
    [
        ("xid", pa.string()),
        ("scn", pa.uint64()),
        ("thread", pa.int32()),
        ("rs_id", pa.string()),
        ("ssn", pa.int64()),
        ("code", pa.int32()),
        ("owner", pa.string()),
        ("name", pa.string()),
        ("row_id", pa.string()),
        ("undo", pa.bool_()),
        ("time", pa.string()),
        ("user", pa.string()),
        ("status", pa.int32()),
        ("info", pa.string()),
        ("sql", pa.string()),
    ]
)
"""What is kept of a mined row."""
_LOG = logging.getLogger("headrace.sources")


class Staging:
    """The folder of mined ranges. Used by driver and executors alike; holds nothing open.

    Args:
        location: a folder, or a URL of a file system that pyarrow knows.
        identity: whose ranges: the database and what is mined of it.
    """

    def __init__(self, location: str, identity: Sequence[str]) -> None:
        if not location:
            raise OptionError(
                "Option 'staging_location' of source 'oracle' is missing.",
                remedy="Name a folder or URL that the driver and all executors reach.",
            )
        self._location = location
        self._mark = hashlib.sha256(json.dumps(list(identity)).encode()).hexdigest()[:12]

    def _opened(self) -> tuple[pafs.FileSystem, str]:
        location = self._location
        if "://" not in location:
            location = str(Path(location).absolute())
        system, path = pafs.FileSystem.from_uri(location)
        return system, path.rstrip("/")

    def _path(self, scns: ScnRange, suffix: str) -> str:
        return f"{scn.to_text(scns.low)}-{scn.to_text(scns.high)}-{self._mark}.{suffix}"

    def index(self, scns: ScnRange) -> RangeIndex | None:
        """A range's index; None when the range is not there, or only half."""
        system, folder = self._opened()
        names = [f"{folder}/{self._path(scns, suffix)}" for suffix in ("json", "parquet")]
        if any(info.type != pafs.FileType.File for info in system.get_file_info(names)):
            return None
        try:
            with system.open_input_stream(names[0]) as stream:
                return RangeIndex.from_json(json.loads(zlib.decompress(stream.read())))
        except (OSError, zlib.error, ValueError) as error:
            _LOG.warning("Mined range %s is damaged and is mined again: %s", self._path(scns, "json"), error)
            return None

    def following(self, low: int) -> list[ScnRange]:
        """The ranges that are there and follow on each other from an SCN on, the longest first where there are several.

        A process that was killed mined further than its last offset says.
        """
        system, folder = self._opened()
        longest: dict[int, int] = {}
        for info in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
            first, _, rest = info.base_name.partition("-")
            last, _, tail = rest.partition("-")
            if tail == f"{self._mark}.json" and first.isdigit() and last.isdigit():
                longest[int(first)] = max(longest.get(int(first), 0), int(last))
        ranges: list[ScnRange] = []
        while low in longest and longest[low] > low:
            ranges.append(ScnRange(low, longest[low]))
            low = longest[low]
        return ranges

    def joined(self, ranges: Sequence[ScnRange]) -> tuple[ScnRange, RangeIndex] | None:
        """Make one range of some that follow on each other, and remove them; None where one of them is not there.

        Only for ranges that no offset names.
        """
        indexes = [self.index(scns) for scns in ranges]
        known = [index for index in indexes if index is not None]
        index = joined_index(known) if len(known) == len(ranges) else None
        if index is None:
            return None
        whole = ScnRange(ranges[0].low, ranges[-1].high)
        self.write(whole, (batch for scns in ranges for batch in self._all(scns)), index)
        system, folder = self._opened()
        for scns in ranges:
            # The index first: without it the range is not there.
            for suffix in ("json", "parquet"):
                system.delete_file(f"{folder}/{self._path(scns, suffix)}")
        return whole, index

    def merged(
        self, ranges: Sequence[ScnRange], xids: Collection[str], indexes: Sequence[RangeIndex]
    ) -> ScnRange | None:
        """Make one range that holds what others have of some transactions; None where one index can't hold it.

        The others stay: an offset may name them still.

        Args:
            ranges: oldest first; there may be SCNs between them in which these transactions have nothing.
            xids: the transactions, which ended in none of the ranges.
            indexes: what each range holds.
        """
        by_index = [index.of_transactions(xids) for index in indexes]
        index = joined_index(by_index)
        if index is None:
            return None
        whole = ScnRange(ranges[0].low, ranges[-1].high)
        self.write(whole, (batch for scns in ranges for batch in self.rows(scns, xids)), index)
        return whole

    def _all(self, scns: ScnRange) -> Iterator[pa.RecordBatch]:
        system, folder = self._opened()
        with pq.ParquetFile(system.open_input_file(f"{folder}/{self._path(scns, 'parquet')}")) as file:
            yield from file.iter_batches(batch_size=ROW_GROUP // 5)

    def rows(
        self, scns: ScnRange, xids: Iterable[str], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some transactions in a range, in mined order.

        Raises:
            OSError: the range is not there.
        """
        system, folder = self._opened()
        wanted = pa.array(sorted(xids), pa.string())
        names = None if columns is None else [*dict.fromkeys(("xid", *columns))]
        with pq.ParquetFile(system.open_input_file(f"{folder}/{self._path(scns, 'parquet')}")) as file:
            for batch in file.iter_batches(batch_size=ROW_GROUP // 5, columns=names):
                staged = batch.filter(pc.is_in(batch.column("xid"), value_set=wanted))
                if staged.num_rows:
                    yield staged

    def write(self, scns: ScnRange, batches: Iterable[pa.RecordBatch], index: RangeIndex) -> None:
        """Keep a range: rows as they come, then the index, which is complete when the rows have ended."""
        system, folder = self._opened()
        system.create_dir(folder, recursive=True)
        mark = uuid.uuid4().hex[:8]
        rows, description = (f"{folder}/{self._path(scns, suffix)}" for suffix in ("parquet", "json"))
        with (
            system.open_output_stream(f"{rows}.{mark}") as stream,
            pq.ParquetWriter(stream, ROWS, compression="zstd") as writer,
        ):
            for batch in batches:
                writer.write_batch(batch, row_group_size=ROW_GROUP)
        with system.open_output_stream(f"{description}.{mark}") as stream:
            stream.write(zlib.compress(json.dumps(index.to_json(), separators=(",", ":")).encode(), 3))
        system.move(f"{rows}.{mark}", rows)
        system.move(f"{description}.{mark}", description)

    def forget(self, keep: Iterable[ScnRange], upto: int) -> None:
        """Remove ranges that end at or before an SCN, but for some."""
        system, folder = self._opened()
        kept = {self._path(scns, suffix) for scns in keep for suffix in ("json", "parquet")}
        for info in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
            parts = info.base_name.split("-")
            if info.type != pafs.FileType.File or len(parts) != 3 or info.base_name in kept:
                continue
            if parts[1].isdigit() and int(parts[1]) <= upto:
                system.delete_file(info.path)
