"""A process that reads batch after batch as a pipeline does, into a folder: first it keeps where a batch ends, then its
rows. A batch whose rows are not there is read again. It ends when nothing is new and the file `settle` is there.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from pathlib import Path

import pyarrow as pa

from headrace.changes import arrow_schema
from headrace.sources.base import Limit
from headrace.sources.mysql.source import MysqlSource
from headrace.sources.offset import Offset


def main(folder: Path) -> None:
    source = MysqlSource.of(json.loads((folder / "options.json").read_text()))
    number, start = 0, Offset.nothing()
    while True:
        kept = folder / f"{number}.offset"
        if not kept.exists():
            settles = (folder / "settle").exists()
            end = source.advance(start, Limit(), dt.datetime.now(dt.UTC))
            if end == start:
                if settles:
                    return
                threading.Event().wait(0.02)
                continue
            _keep(kept, end.to_text().encode())
        end = Offset.from_json(json.loads(kept.read_text()))
        rows = folder / f"{number}.rows"
        if not rows.exists():
            batches = [batch for slice in source.plan(start, end) for batch in source.read(slice)]
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, arrow_schema()) as stream:
                for batch in batches:
                    stream.write_batch(batch)
            _keep(rows, out.getvalue().to_pybytes())
        number, start = number + 1, end


def _keep(file: Path, content: bytes) -> None:
    made = file.with_suffix(".made")
    made.write_bytes(content)
    made.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
