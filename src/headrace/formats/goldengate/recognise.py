"""By what a message of Oracle GoldenGate is known: names and values of JSON fields that only its messages have."""

from __future__ import annotations

from headrace.formats.recognition import Evidence, Sample


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of GoldenGate's; None where nothing says so."""
    fields = message.fields
    if fields.get("op_type") in ("I", "U", "D", "T") and isinstance(fields.get("table"), str) and "op_ts" in fields:
        return Evidence("an `op_type` of one letter beside `table` and `op_ts`")
    return None
