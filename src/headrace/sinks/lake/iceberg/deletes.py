"""What marks rows of an Iceberg table's data files as deleted: files of positions in format 2, vectors in format 3.

A file of positions names rows of any number of data files. A vector is that of one data file, which has one at most,
and all vectors of a commit are in one file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.sinks.lake.data_files import numbered
from headrace.sinks.lake.indexed import Rows
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.vectors import framed

_PATH, _POSITION = "file_path", "pos"
"""The columns of a file of positions."""
PARQUET, PUFFIN = "PARQUET", "PUFFIN"
_POSITION_NUMBER = 2147483545
_POSITIONS = pa.schema(
    [
        numbered(_PATH, pa.string(), 2147483546, required=True),
        numbered(_POSITION, pa.int64(), _POSITION_NUMBER, required=True),
    ]
)
"""The numbers of these columns are Iceberg's for all tables."""
_MAGIC = b"PFA1"


@dataclass(frozen=True)
class Deletes:
    """A file of positions, or a vector.

    Args:
        path: of the file, as the table has it.
        size: of the file, in bytes.
        partition: the values of the partition whose rows it deletes, as `TableFacts.partition_text` has them.
        rows: the deleted ones, by data file.
        offset: where the vector begins in the file; None for a file of positions.
        length: how many bytes the vector takes; likewise.
    """

    path: str
    size: int
    partition: str
    rows: Mapping[str, Rows] = field(repr=False)
    offset: int | None = None
    length: int | None = None

    @property
    def identity(self) -> tuple[str, int | None]:
        return self.path, self.offset

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.values())


def write_positions(folder: Folder, table_folder: str, partition: str, rows: Mapping[str, Rows]) -> Deletes:
    """Write a file of positions, ordered as readers want it.

    Args:
        folder: that of the table's data files.
        table_folder: the same as the table has it.
        partition: the one that all rows are in.
        rows: those that are deleted, by data file; not empty.

    Raises:
        OSError: it can't be written.
    """
    paths = sorted(rows)
    counts = [len(rows[path]) for path in paths]
    names = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(paths), dtype=np.int32), counts), paths)
    positions = np.concatenate([np.sort(rows[path]) for path in paths])
    table = pa.Table.from_arrays([names.cast(pa.string()), pa.array(positions)], schema=_POSITIONS)
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd", store_schema=False)
    data = written.getvalue()
    name = f"{uuid4()}-deletes.parquet"
    folder.storage.write(folder.location(name), data)
    return Deletes(f"{table_folder}/{name}", int(data.size), partition, rows)


def write_vectors(folder: Folder, table_folder: str, rows: Mapping[str, Mapping[str, Rows]]) -> list[Deletes]:
    """Write vectors into one file, in Iceberg's format Puffin.

    Args:
        folder: that of the table's data files.
        table_folder: the same as the table has it.
        rows: all that are deleted in a data file, by partition and data file.

    Raises:
        OSError: it can't be written.
    """
    body, blobs, vectors = bytearray(_MAGIC), [], []
    for partition, files in rows.items():
        for path, gone in files.items():
            frame = framed(gone)
            vectors.append((partition, path, gone, len(body), len(frame)))
            blobs.append(
                {
                    "type": "deletion-vector-v1",
                    "fields": [_POSITION_NUMBER],
                    # Both are inherited from the commit.
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": len(body),
                    "length": len(frame),
                    "properties": {"referenced-data-file": path, "cardinality": str(len(gone))},
                }
            )
            body += frame
    if not vectors:
        return []
    footer = json.dumps({"blobs": blobs}, ensure_ascii=False).encode()
    body += _MAGIC + footer + struct.pack("<II", len(footer), 0) + _MAGIC
    name = f"{uuid4()}-deletes.puffin"
    folder.storage.write(folder.location(name), bytes(body))
    location = f"{table_folder}/{name}"
    return [
        Deletes(location, len(body), partition, {path: gone}, offset, length)
        for partition, path, gone, offset, length in vectors
    ]


def rows_of_positions(file: pq.ParquetFile) -> dict[str, Rows]:
    positions = file.read(columns=[_PATH, _POSITION], use_threads=False).combine_chunks()
    paths = pa.concat_arrays(positions.column(_PATH).chunks).dictionary_encode()
    numbers = paths.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    rows = positions.column(_POSITION).to_numpy()[order]
    ends = np.searchsorted(numbers[order], np.arange(1, len(paths.dictionary)))
    return dict(zip(paths.dictionary.to_pylist(), np.split(rows, ends), strict=True))
