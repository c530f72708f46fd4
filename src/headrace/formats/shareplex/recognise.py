"""By what a message of SharePlex is known: names and values of JSON fields that only its messages have."""

from __future__ import annotations

import re

from headrace.formats.recognition import Evidence, Sample

_OPERATIONS = re.compile(r"ins|upd|del|trunc|ddl|commit|insert|update( before| after)?|delete|truncate|drop column")


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of SharePlex'; None where nothing says so."""
    meta = message.fields.get("meta")
    if isinstance(meta, dict) and _OPERATIONS.fullmatch(str(meta.get("op")).lower()):
        return Evidence("an operation in `meta.op`")
    return None
