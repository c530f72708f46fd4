"""Schemas of Avro's named types, as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def record(name: str, *fields: tuple[str, Any], namespace: str | None = None) -> dict[str, Any]:
    """A record of these fields: the name and the type of each."""
    described = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, **_within(namespace), "fields": described}


def enum(name: str, symbols: Sequence[str], *, namespace: str | None = None) -> dict[str, Any]:
    return {"type": "enum", "name": name, **_within(namespace), "symbols": list(symbols)}


def optional(*kinds: Any) -> list[Any]:
    return ["null", *kinds]


def _within(namespace: str | None) -> dict[str, str]:
    return {} if namespace is None else {"namespace": namespace}
