"""Compile what reads and writes messages, once for a machine: `python -m headrace.formats.kernels`.

Kernels are compiled when they are first called, each for the types of its arguments. So a message that holds one of
everything goes through each format that is made of them. It takes some 20 seconds of CPU where they are not compiled
yet, and a second where they are. Without it the first batch waits.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.codec import KAFKA, ArrowFormat, Facts, run_codec
from headrace.formats.convert import format_named
from headrace.wire.compiled import is_compiled

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
_ROW = {name: text for name, (_, text) in _VALUES.items()}
_CANAL = {
    "data": [_ROW],
    "old": [{"text": "x", "gone": None}],
    "type": "UPDATE",
    "database": "d",
    "table": "t",
    "es": 1,
    "ts": 1,
    "id": 1,
    "pkNames": ["id"],
    "mysqlType": {"id": "int", "flag": "boolean"},
}
_MAXWELL = {
    "database": "d",
    "table": "t",
    "type": "update",
    "ts": 1,
    "primary_key_columns": ["id"],
    "data": {**_ROW, "nested": {"a": [1, 2]}},
    "old": {"text": "x"},
}
_QLIK = {
    "data": {**_ROW, "text": None},
    "beforeData": _ROW,
    "headers": {"operation": "UPDATE", "timestamp": "2024-02-29T01:02:03.5", "changeMask": "0080", "columnMask": "01"},
}
# An update of a row with an integer, a decimal, a text, a time, and a value that is absent.
_DTS = (
    "AA6AxJ/VDBA3MjQ2OUA3OBA3MjM0N0A3OAIwAAw4LjAuMjgCAghkYi50AAIUcGtfdWtfaW5mbyR7IlBSSU1BUlkiOlsiaWQiXX0ABAoEaWQGDGFt"
    "b3VudOwDCG5hbWX6AwhtYWRlJAhnb25l+gMABAoCEAIxBgYxLjUAAAQOdXRmOG1iNATDqQwC0B8CAgIEAgYCCAIKAgwYAgAECgIQAjIGBjIuNQAA"
    "BA51dGY4bWI0AnkMAtAfAgICBAAAAAAYAADQr6v++WI="
)
_CONNECT = {
    "id": ("int32", None, 1),
    "amount": ("bytes", "org.apache.kafka.connect.data.Decimal", "AJY="),
    "ratio": ("double", None, 0.5),
    "day": ("int32", "io.debezium.time.Date", 1),
    "made": ("int64", "io.debezium.time.MicroTimestamp", 1),
    "text": ("string", None, 'é "\n'),
}
_FIELDS = [{"field": field, "type": kind, "name": name} for field, (kind, name, _) in _CONNECT.items()]
_CONNECT_ROW = {field: value for field, (_, _, value) in _CONNECT.items()}
_SOURCE = {"connector": "x", "db": "d", "table": "t", "ts_ms": 1}
_DEBEZIUM = {
    "schema": {"fields": [*({"field": name, "fields": _FIELDS} for name in ("before", "after")), {"field": "op"}]},
    "payload": {
        "before": _CONNECT_ROW,
        "after": _CONNECT_ROW,
        "source": _SOURCE,
        "op": "u",
        "transaction": {"id": "x"},
    },
}
_DEBEZIUM_KEY = {"schema": {"fields": _FIELDS[:1]}, "payload": {"id": 1}}
# The same by a schema of Avro: a row with a number of each kind, and one nested value.
_AVRO_ROW = [
    {"name": "id", "type": "int"},
    {"name": "single", "type": "float"},
    {"name": "ratio", "type": "double"},
    {"name": "flag", "type": "boolean"},
    {"name": "amount", "type": {"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal"}},
    {"name": "text", "type": ["null", "string"]},
    {"name": "nested", "type": {"type": "array", "items": "string"}},
]
_AVRO_SCHEMA = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "after", "type": {"type": "record", "name": "Value", "fields": _AVRO_ROW}},
        {"name": "op", "type": "string"},
    ],
}
_AVRO = bytes.fromhex("02 0000003f 000000000000e03f 01 020a 02 02 78 02 02 61 00 02 63")
_OPTIONS: dict[str, dict[str, Any]] = {
    "debezium_json": {"topic_prefix": "s"},
    "debezium_avro": {"topic_prefix": "s", "framing": "none", "value_schema": json.dumps(_AVRO_SCHEMA)},
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
    canal, maxwell, debezium, key = (json.dumps(m).encode() for m in (_CANAL, _MAXWELL, _DEBEZIUM, _DEBEZIUM_KEY))
    samples = (
        ("canal_json", canal, True),
        ("dts_avro", base64.b64decode(_DTS), True),
        ("maxwell_json", maxwell, True),
        ("debezium_json", debezium, True),
        ("debezium_avro", _AVRO, True),
        ("qlik_json", json.dumps(_QLIK).encode(), True),
    )
    for name, value, encodes in [sample for sample in samples if sample[0] in formats] or samples:
        codecs = format_named(name, _OPTIONS.get(name, {}))
        assert isinstance(codecs, ArrowFormat)
        message = {"topic": "t", "offset": 0, "timestamp": 0, "key": key, "value": value}
        messages = pa.RecordBatch.from_pylist([message], KAFKA)
        # Qlik's encoder writes no row that follows no structure.
        for facts in (Facts((_SCHEMA,) if name == "qlik_json" else ()), Facts(typed=_SCHEMA)):
            rows = pa.concat_batches(list(run_codec(codecs.decoder(facts), [messages, messages])))
            if encodes:
                told = rows.column("table_schema")[0].as_py()
                known = _SCHEMA if told is None else TableSchema.from_text(told)
                changes = rows.append_column("has_types", rows.column("op").is_valid())
                list(run_codec(codecs.encoder(Facts((known,), facts.typed)), [changes]))


def main() -> None:
    """Compile, and say how long it took."""
    if not is_compiled():
        return
    started = time.monotonic()
    sys.stdout.write("Compiling what reads and writes messages, once for this machine.\n")
    sys.stdout.flush()
    compile_all()
    sys.stdout.write(f"Compiled in {time.monotonic() - started:.0f} s.\n")


if __name__ == "__main__":
    main()
