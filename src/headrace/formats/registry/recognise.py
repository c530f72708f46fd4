"""By what a message that names its Avro schema is known: the frame, or the header with the schema's id."""

from __future__ import annotations

from headrace.formats.recognition import Evidence, FormatOptions, Sample

_CONFLUENT_HEADERS = frozenset(("__value_schema_id", "__key_schema_id"))
_APICURIO_HEADERS = frozenset(("apicurio.value.globalId", "apicurio.value.contentId"))


def recognise_framed(message: Sample, mark: bool, of: str) -> Evidence | None:
    """Why the message may be of a format whose messages name their schemas; None for one without a frame.

    Args:
        message: the message.
        mark: whether its value has a mark that only messages of the format have; else it may be of another one.
        of: the mark in words.
    """
    frame = _frame(message)
    if frame is None:
        return None
    seen, framing = frame
    return Evidence(f"{seen}, {of if mark else 'but nothing that tells whose'}", framing, sure=mark)


def _frame(message: Sample) -> tuple[str, FormatOptions] | None:
    """The frame in words, and the options by which it is read."""
    value = message.value
    if value is None or message.is_object:
        return None
    if _CONFLUENT_HEADERS & set(message.headers):
        return "a schema id in Confluent's record header", (("framing", "confluent-header"),)
    if _APICURIO_HEADERS & set(message.headers):
        return "a schema id in Apicurio's record header", (("framing", "apicurio-header"),)
    if value[:5] == bytes(5) and any(value[5:9]) and len(value) > 9:
        # Registries count from 1, so these are the upper half of an id of eight bytes.
        return "a zero byte and a schema id of eight bytes", (("framing", "apicurio8"),)
    if value[:1] == b"\0" and len(value) > 5 and any(value[1:5]) and value[1] < 0x80:
        return "a zero byte and a schema id of four bytes", ()
    return None
