"""By what a message of Qlik Replicate is known: its envelope, or fields and values that only its messages have."""

from __future__ import annotations

import re

from headrace.formats.recognition import Evidence, Sample
from headrace.formats.registry.recognise import recognise_framed

_ENVELOPE = re.compile(rb"atMSG\x04(MD|DT)", re.DOTALL)
# What stands in an Avro datum in clear: a text's length, zigzag, and its bytes.
_SEQUENCE = re.compile(rb"F\d{35}")


def recognise_json(message: Sample) -> Evidence | None:
    """Why the message is one of Qlik's in JSON; None where nothing says so."""
    fields = message.fields
    if fields.get("magic") == "atMSG" and "message" in fields:
        return Evidence("the envelope with `magic` atMSG")
    headers = fields.get("headers")
    if "data" in fields and isinstance(headers, dict) and "operation" in headers and "changeSequence" in headers:
        return Evidence("`operation` and `changeSequence` in `headers`")
    if {"schemaId", "lineage", "tableStructure"} <= fields.keys():
        return Evidence("a metadata message with `lineage` and `tableStructure`")
    return None


def recognise_avro(message: Sample) -> Evidence | None:
    """Why the message may be one of Qlik's in Avro; None where nothing says so."""
    value = message.value or b""
    if _ENVELOPE.match(value):
        return Evidence("the envelope's first bytes, atMSG")
    return recognise_framed(message, bool(_SEQUENCE.search(value)), "and a change sequence of 35 digits")
