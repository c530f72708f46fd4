"""Connect schemas, as JsonConverter writes them: their fields, and how they stand in front of payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Opening: TypeAlias = Callable[[str], str]
"""What stands in front of a payload, by the text of its schema."""


def with_schema(schema: str) -> str:
    """What stands in front of a payload, as JsonConverter writes it."""
    return f'{{"schema":{schema},"payload":'


def plain(kind: str, name: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def listed(items: dict[str, Any], name: str, *, optional: bool) -> dict[str, Any]:
    return {"type": "array", "items": items, "optional": optional, "field": name}


def struct(
    fields: list[dict[str, Any]],
    *,
    optional: bool,
    name: str | None = None,
    version: int | None = None,
    field: str | None = None,
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "struct", "fields": fields, "optional": optional}
    for key, value in (("name", name), ("version", version), ("field", field)):
        if value is not None:
            schema[key] = value
    return schema
