"""Single values in Debezium's messages."""

from __future__ import annotations

import base64
from typing import Any

TIME, CONNECT, DATA = "io.debezium.time.", "org.apache.kafka.connect.data.", "io.debezium.data."


DECIMAL, VARIABLE = f"{CONNECT}Decimal", f"{DATA}VariableScaleDecimal"


def unscaled(number: int, more: int = 0) -> str:
    size = max(1, (number.bit_length() + 8) // 8) + more
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def named(kind: str, name: str | None = None, **parameters: str) -> dict[str, Any]:
    return {"type": kind, **({"name": name} if name else {}), **({"parameters": parameters} if parameters else {})}


WORD = "__debezium_unavailable_value"


def message(field: dict[str, Any], value: Any) -> dict[str, Any]:
    struct = {
        "type": "struct", "optional": True, "name": "s.d.t.Value",
        "fields": [{"type": "int32", "optional": False, "field": "id"}, {**field, "optional": True, "field": "c"}],
    }  # fmt: skip
    envelope = {
        "type": "struct", "optional": False, "name": "s.d.t.Envelope",
        "fields": [
            {**struct, "field": "before"}, {**struct, "field": "after"},
            {"type": "struct", "fields": [], "field": "source"}, {"type": "string", "field": "op"},
        ],
    }  # fmt: skip
    source = {"connector": "mysql", "db": "d", "table": "t", "ts_ms": 1_700_000_000_123, "snapshot": "false"}
    return {
        "schema": envelope,
        "payload": {"before": None, "after": {"id": 1, "c": value}, "source": source, "op": "c", "ts_ms": 1},
    }
