"""Compile what reads and writes messages, once for a machine: `python -m headrace.formats.kernels`.

Kernels are compiled when they are first called, each for the types of its arguments. So a message that holds one of
everything goes through each format that is made of them. It takes some 70 seconds of CPU where they are not compiled
yet, and a second where they are. Without it the first batch waits. It needs no Spark.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import arrow_schema
from headrace.formats.avro_records import optional, record
from headrace.formats.codec import KAFKA, ArrowFormat, Codec, Facts, run_codec
from headrace.formats.convert import format_named
from headrace.wire.compiled import folders, is_compiled

_VALUES = {
    "id": ("int32", "1"),
    "flag": ("boolean", "true"),
    "amount": ("decimal(9,2)", "1.50"),
    "ratio": ("float64", "0.5"),
    "day": ("date", "2024-02-29"),
    "made": ("timestamp(6)", "2024-02-29 01:02:03.5"),
    "at": ("instant(6)", "2024-02-29T01:02:03Z"),
    "text": ("string", 'é "\n'),
    "more": ("int64", "1"),
    "small": ("int16", "1"),
    "tiny": ("int8", "1"),
}
# An update, which each format writes and reads; Qlik's without the envelope, so that it needs no metadata.
_CHANGE = {
    "op": "u",
    "table": {"database": "d", "schema": "", "name": "t"},
    "key": [("id", "1")],
    "key_text": '["1"]',
    "before": [(name, "" if name == "text" else text) for name, (_, text) in _VALUES.items()],
    "after": [(name, text) for name, (_, text) in _VALUES.items()],
    "position": "1/1/1",
    "event_time": 1_000_000,
    "capture_time": 1_000_000,
    "transaction": {"id": "1", "total_order": 1},
    "source": [("connector", "mysql")],
    "has_types": True,
}
# What an event in Avro is read by: a row with a number of each kind, and one nested value.
_AVRO_ROW = record(
    "Value",
    ("id", "int"),
    ("single", "float"),
    ("ratio", "double"),
    ("flag", "boolean"),
    ("amount", {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}),
    ("text", optional("string")),
    ("nested", {"type": "array", "items": "string"}),
)
_AVRO_SCHEMA = record("Envelope", ("after", _AVRO_ROW), ("op", "string"))
_AVRO = bytes.fromhex("02 0000003f 000000000000e03f 01 020a 02 02 78 02 02 61 00 02 63")
_OPTIONS: dict[str, dict[str, Any]] = {
    "canal_json": {},
    "dts_avro": {},
    "maxwell_json": {},
    "debezium_json": {"topic_prefix": "s", "schemas_enable": True},
    "debezium_avro": {"topic_prefix": "s", "framing": "none", "value_schema": json.dumps(_AVRO_SCHEMA)},
    "qlik_json": {"envelope": False},
}
_SCHEMA = TableSchema(
    TableId("d", "", "t"),
    tuple(Column(name, n, LogicalType.parse(kind)) for n, (name, (kind, _)) in enumerate(_VALUES.items(), 1)),
    ("id",),
)


def compile_all(formats: Collection[str] = ()) -> None:
    """Call each kernel as formats call it.

    Args:
        formats: their names; all where none of them is known here.
    """
    for name in [name for name in _OPTIONS if name in formats] or _OPTIONS:
        codecs = format_named(name, _OPTIONS[name])
        assert isinstance(codecs, ArrowFormat)
        messages = pa.RecordBatch.from_pylist([{"topic": "t", "offset": 0, "timestamp": 0, "value": _AVRO}], KAFKA)
        if name != "debezium_avro":
            messages = _only(codecs.encoder(Facts((_SCHEMA,))), _changes())
        # Qlik's encoder writes no row that follows no schema.
        for facts in (Facts((_SCHEMA,) if name == "qlik_json" else ()), Facts(typed=_SCHEMA)):
            rows = _only(codecs.decoder(facts), messages, messages)
            schema_text = rows.column("table_schema")[0].as_py()
            known = _SCHEMA if schema_text is None else TableSchema.from_text(schema_text)
            changes = rows.append_column("has_types", rows.column("op").is_valid())
            _only(codecs.encoder(Facts((known,), facts.typed)), changes)


def _changes() -> pa.RecordBatch:
    schema = arrow_schema().append(pa.field("has_types", pa.bool_()))
    return pa.RecordBatch.from_pylist([_CHANGE | {"schema_id": _SCHEMA.fingerprint}], schema)


def _only(codec: Codec, *batches: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches(list(run_codec(codec, batches)))


def main(compiling: Callable[[], None], what: str) -> None:
    """Compile, and say how long it took and where the kernels lie.

    Args:
        compiling: what does it.
        what: what the kernels read, as a part of a sentence.
    """
    if not is_compiled():
        return
    folder = folders().written
    if folder is None:
        sys.exit("Can't write compiled kernels to any folder. Set HEADRACE_KERNELS.")
    started = time.monotonic()
    sys.stdout.write(f"Compiling the code that reads {what} (once for each kind of machine).\n")
    sys.stdout.flush()
    compiling()
    sys.stdout.write(f"The compiled code is in {folder} ({time.monotonic() - started:.0f} s).\n")


if __name__ == "__main__":
    main(compile_all, "and writes messages")
