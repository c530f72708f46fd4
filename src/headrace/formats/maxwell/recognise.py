"""By what a message of Maxwell's daemon is known: names and values of JSON fields that only its messages have."""

from __future__ import annotations

import re

from headrace.formats.recognition import Evidence, Sample

_KINDS = re.compile(r"(insert|update|delete|bootstrap-\w+|(table|database)-(create|alter|drop))")


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of Maxwell's; None where nothing says so."""
    fields = message.fields
    kind = fields.get("type")
    if not isinstance(kind, str) or not _KINDS.fullmatch(kind) or "database" not in fields or "ts" not in fields:
        return None
    return Evidence("a lower-case `type` beside `database` and `ts`")
