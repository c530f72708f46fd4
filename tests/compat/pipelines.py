"""The pipelines whose checkpoints and targets are kept, and what makes a kept folder usable in another place."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastavro import reader, writer
from tests.compat.databases import HERE

TABLES = ("customers", "log")
SINKS: tuple[dict[str, Any], ...] = (
    {"type": "delta", "path": "./lake"},
    # Deletes beside the data would name files by their whole path inside Parquet.
    {"type": "iceberg", "catalog": "kept", "warehouse": "./ice", "merge_on_read": False},
    {
        "type": "delta",
        "path": "./history",
        "stored_as_scd_type": 2,
        "routes": [{"tables": "dbo.customers"}],
        "unrouted_tables": "leave_out",
    },
    {"type": "delta", "path": "./log", "stored_as_scd_type": "append"},
    {"type": "files", "path": "./messages"},
)


def shop_pipeline(folder: Path, sinks: Sequence[Mapping[str, Any]] = SINKS) -> Path:
    """The pipeline file of the kept shop."""
    text = {
        "source": {"type": "sqlserver", "driver": "emulator", "hostname": str(folder / "server"), "database": "shop"},
        "format": {"type": "debezium_json", "topic.prefix": "shop"},
        "sinks": list(sinks),
        "pipeline": {"name": "kept", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    return _written(folder / "pipeline.yaml", text)


def topic_pipeline(folder: Path, bootstrap: str = "127.0.0.1:1") -> Path:
    """The pipeline file of the kept topic."""
    text = {
        "source": {
            "type": "kafka",
            "bootstrap.servers": bootstrap,
            "topics": ["t"],
            "format": {"type": "debezium_json"},
        },
        "sink": {"type": "memory"},
        "pipeline": {"name": "topic", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    return _written(folder / "pipeline.yaml", text)


def _written(file: Path, text: dict[str, Any]) -> Path:
    file.write_text(json.dumps(text))
    return file


def kept(version: str, name: str) -> Path:
    """A kept folder."""
    return HERE / version / f"{name}.tar.xz"


def move_iceberg(warehouse: Path) -> None:
    """Let the tables of a warehouse, which name their files by whole paths, say where they are now."""
    for metadata in sorted(warehouse.rglob("*.metadata.json")):
        before = json.loads(metadata.read_text())["location"]
        now = str(metadata.parents[1])
        metadata.write_text(metadata.read_text().replace(before, now))
        manifests = [file for file in metadata.parent.glob("*.avro") if not file.name.startswith("snap-")]
        for file in manifests:
            _rewrite(file, before, now, {})
        sizes = {str(file): file.stat().st_size for file in manifests}
        for file in metadata.parent.glob("snap-*.avro"):
            _rewrite(file, before, now, sizes)
    for stale in warehouse.rglob(".*.crc"):
        stale.unlink()


def move_delta(table: Path) -> None:
    """Let a table that is known by its folder say where it is now."""
    for log in sorted((table / "_delta_log").glob("*.json")):
        log.write_text(re.sub(r"/tmp/[^/]*/by-hand(?=/)", str(table.parent), log.read_text()))
    for stale in (table / "_delta_log").glob("*.crc*"):
        stale.unlink()
    for stale in (table / "_delta_log").glob(".*.crc"):
        stale.unlink()


def _rewrite(file: Path, before: str, now: str, sizes: dict[str, int]) -> None:
    with file.open("rb") as given:
        found = reader(given)
        schema, said = found.writer_schema, {k: v for k, v in found.metadata.items() if not k.startswith("avro.")}
        records = [_moved(record, before, now) for record in found]
    for record in records:
        if record.get("manifest_path") in sizes:
            record["manifest_length"] = sizes[record["manifest_path"]]
    with file.open("wb") as made:
        writer(made, schema, records, codec="deflate", metadata=said)


def _moved(value: Any, before: str, now: str) -> Any:
    if isinstance(value, dict):
        return {name: _moved(part, before, now) for name, part in value.items()}
    if isinstance(value, list):
        return [_moved(part, before, now) for part in value]
    return value.replace(before, now) if isinstance(value, str) else value
