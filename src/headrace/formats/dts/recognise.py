"""By what a message of Alibaba DTS is known: it is a DTS record with a time and a position; other bytes seldom are."""

from __future__ import annotations

import pyarrow as pa

from headrace.formats.dts.record import FIELD, SCHEMA
from headrace.formats.recognition import Evidence, Sample
from headrace.wire.avro_tape import AvroTape

_SECONDS_MOST = 10**11


def recognise(message: Sample) -> Evidence | None:
    """Why the message is one of DTS; None where nothing says so."""
    if message.value is None or message.is_object:
        return None
    tape = AvroTape(pa.array([message.value], pa.binary()), SCHEMA)
    fields = tape.records(tape.root, len(FIELD))
    seconds, position = tape.numbers(fields[FIELD["sourceTimestamp"]])[0], fields[FIELD["sourcePosition"]]
    known = 0 < seconds < _SECONDS_MOST and tape.is_text(position)[0] and tape.text(position[0])
    return Evidence("a DTS record, without any frame") if known else None
