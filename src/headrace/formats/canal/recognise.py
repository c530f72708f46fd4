"""By what a message of Canal is known: names and values of JSON fields that only its messages have."""

from __future__ import annotations

from headrace.formats.recognition import Evidence, Sample

_ROWS = frozenset(("INSERT", "UPDATE", "DELETE", "INIT"))


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of Canal's; None where nothing says so."""
    fields = message.fields
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind.isupper():
        return None
    if isinstance(fields.get("isDdl"), bool) and "es" in fields:
        return Evidence("an upper-case `type` beside `isDdl` and `es`")
    if kind in _ROWS and isinstance(fields.get("data"), list):
        return Evidence("an upper-case `type` beside rows in an array `data`")
    return None
