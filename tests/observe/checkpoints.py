"""Checkpoints written by hand, in the form in which Spark writes them."""

from __future__ import annotations

from pathlib import Path

HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{},"sourceMetadataInfo":{}}'


def write_batch(checkpoint: Path, number: int, *lines: str, committed: bool = True) -> None:
    """A batch that ends at these offsets, one for each source, and is committed or not yet."""
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    if not (checkpoint / "metadata").exists():
        (checkpoint / "metadata").write_text('{"id":"c7a8b9d0-0000-4000-8000-000000000001"}')
    (checkpoint / "offsets" / str(number)).write_text("\n".join(["v1", HEAD, *lines]))
    (checkpoint / "offsets" / f".{number}.crc").touch()
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (checkpoint / "commits" / f".{number}.crc").touch()
