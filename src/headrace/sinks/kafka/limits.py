"""Messages that Kafka would refuse for their size: reported before any message of their batch is sent, as Spark SQL.

Two limits count. The producer's (`max.request.size`, `buffer.memory`) looks at an estimate of the message alone,
before compression; the topic's (`max.message.bytes`) looks at the batch that arrives, which for a large message holds
nothing else. What compression makes of a message is not known beforehand, so with `compression.type` set only the
producer's limit is looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.changes.refusal import StopReason, refusal, refused
from headrace.errors import SinkError
from headrace.sinks.kafka.partitions import by_topic

_BATCH_BYTES = 61
_MOST_RECORD_OVERHEAD = 21
_LEAST_RECORD_OVERHEAD = 3
_MOST_KEY_SHOWN = 120
_OPENING = "A Kafka message"
# What a record, its batch, and headers add to key and value; more than that only in odd headers.
_USUAL_OVERHEAD = 16_384
_DEFAULT_BATCH = 16_384
_DEFAULTS = {"max.request.size": 1_048_576, "buffer.memory": 33_554_432}


def estimated_size() -> str:
    """Spark SQL for the size that Kafka's producer compares with its limits (columns key, value, headers).

    Source: org.apache.kafka.common.record.AbstractRecords.estimateSizeInBytesUpperBound.
    """
    return f"({_BATCH_BYTES + _MOST_RECORD_OVERHEAD} + {_content()})"


def batch_size() -> str:
    """Spark SQL for the size of a batch that holds nothing but the message, uncompressed; the least that a broker gets.

    Source: Kafka's protocol, record batch of version 2.
    """
    body = f"({_LEAST_RECORD_OVERHEAD} + {_content()})"
    return f"({_BATCH_BYTES} + {_varint(body)} + {body})"


def quickly_checked(partition: str, settings: Mapping[str, str], limits: Mapping[str, int | None]) -> str:
    """Spark SQL that gives `partition`, or stops the query at a message that may be too large; `checked` knows better.

    It is short, because Spark plans every batch again, and long expressions slow planning down.
    """
    bare = "coalesce(length(key), 0) + coalesce(length(value), 0)"
    return f"if({bare} <= {surely_fits(settings, limits)}, {partition}, {StopReason.MAYBE_TOO_LARGE.sql})"


def surely_fits(settings: Mapping[str, str], limits: Mapping[str, int | None]) -> int:
    """The most bytes of key and value with which a message is not too large, with headers that are not odd."""
    known = [] if _compressed(settings) else [limit for limit in limits.values() if limit is not None]
    least = min([producer_limit(settings)[1], *known])
    return max(least - _USUAL_OVERHEAD, least // 2)


def checked(partition: str, settings: Mapping[str, str], limits: Mapping[str, int | None]) -> str:
    """Spark SQL that gives `partition`, or stops the query at a message that Kafka would refuse for its size.

    Args:
        partition: Spark SQL.
        settings: those of the producer, by Kafka's names.
        limits: the `max.message.bytes` of each topic; null where it is unknown.
    """
    branches = " ".join(
        f"when {too_large} then {refusal(f'concat({sentence}, {_ending(setting)})', SinkError)}"
        for too_large, sentence, setting in _findings(settings, limits)
    )
    return f"case {branches} else {partition} end"


def reason(settings: Mapping[str, str], limits: Mapping[str, int | None]) -> str:
    """Spark SQL for the sentence that says why Kafka would refuse a message for its size; null where it would not.

    Args:
        settings: those of the producer, by Kafka's names.
        limits: the `max.message.bytes` of each topic; null where it is unknown.
    """
    findings = _findings(settings, limits)
    return f"case {' '.join(f'when {large} then {sentence}' for large, sentence, _ in findings)} end"


def _findings(settings: Mapping[str, str], limits: Mapping[str, int | None]) -> list[tuple[str, str, str | None]]:
    """Spark SQL for whether a message is over a limit and the sentence that says so; and the producer's setting."""
    name, most = producer_limit(settings)
    findings: list[tuple[str, str, str | None]] = [
        (f"{estimated_size()} > {most}", _sentence(estimated_size(), f"the producer\\'s {name}", f"{most}"), name)
    ]
    if any(limit is not None for limit in limits.values()) and not _compressed(settings):
        limit = by_topic(limits)
        findings.append((f"{batch_size()} > {limit}", _sentence(batch_size(), "its max.message.bytes", limit), None))
    return findings


def producer_limit(settings: Mapping[str, str]) -> tuple[str, int]:
    """The producer's setting that bounds a message, and its bytes."""
    limits = {}
    for name, default in _DEFAULTS.items():
        given = settings.get(name, "").strip()
        limits[name] = int(given) if given.isdigit() else default
    return min(limits.items(), key=lambda item: item[1])


def fitting_batches(settings: Mapping[str, str], limits: Mapping[str, int | None]) -> dict[str, str]:
    """The producer's `batch.size` where what is set, or Kafka's default, is more than a topic takes; else nothing.

    Kafka's client splits a batch that its topic refuses into batches of that very size and then forgets them without
    an error (seen with 3.9.0), so such batches must not be made. How well messages are compressed is only estimated
    while a batch is filled, hence half of the limit then.
    """
    given = settings.get("batch.size", "").strip()
    size = int(given) if given.isdigit() else _DEFAULT_BATCH
    known = [limit for limit in limits.values() if limit is not None]
    most = min(known, default=size) // (2 if _compressed(settings) else 1)
    return {"batch.size": str(most)} if known and most < size else {}


def sentence_of(failure: str) -> str | None:
    """Our sentence about a message that is too large, out of what Spark made of it; None where it is something else."""
    error = refused(failure)
    return error.message if error is not None and error.message.startswith(_OPENING) else None


def not_accepted(servers: str, batch: int, *, too_large: bool, is_transient: bool) -> SinkError:
    """The error of a batch of which Kafka did not take all messages.

    Args:
        servers: the brokers that were named.
        batch: the batch's number.
        too_large: whether Kafka said that it is for the size of a message.
        is_transient: whether the reason is transient.
    """
    if too_large:
        return SinkError(
            f"Kafka at {servers} refused a message of batch {batch} for its size; messages before it may be there.",
            remedy="Raise max.message.bytes of its topic (kafka-configs --alter), or capture fewer large columns.",
        )
    remedy = "Run with --debug to see Kafka's message."
    return SinkError(
        f"Kafka at {servers} did not accept batch {batch}.",
        remedy=f"{remedy} You can repeat the batch." if is_transient else remedy,
    )


def _compressed(settings: Mapping[str, str]) -> bool:
    return settings.get("compression.type", "none").strip().lower() != "none"


def _sentence(size: str, limit: str, bytes: str) -> str:
    shown = f"regexp_replace(left(cast(key as string), {_MOST_KEY_SHOWN}), '\\\\p{{Cntrl}}', '?')"
    coded = f"concat('0x', left(hex(key), {_MOST_KEY_SHOWN}))"
    key = f"case when key is null then 'none' when is_valid_utf8(cast(key as string)) then {shown} else {coded} end"
    return (
        f"concat('{_OPENING} for topic ', topic, ' (key ', {key}, ') has ', {size}, ' bytes, more than {limit} of ', "
        f"{bytes}, '.')"
    )


def _ending(producer_setting: str | None) -> str:
    if producer_setting is None:
        remedy = "Raise max.message.bytes of the topic (kafka-configs --alter), or capture fewer large columns"
    else:
        remedy = (
            f"Raise kafka.{producer_setting} of the sink, and max.message.bytes of the topic with it, or capture fewer "
            "large columns"
        )
    return f"' Nothing of its batch was sent. {remedy}.'"


def _content() -> str:
    """Key, value and headers with their lengths, as a record of version 2 has them."""
    header = f"{_sized('h.key', 'octet_length')} + {_sized('h.value')}"
    headers = f"aggregate(coalesce(headers, array()), 0, (s, h) -> s + {header})"
    return f"{_sized('key')} + {_sized('value')} + {_varint('coalesce(size(headers), 0)')} + {headers}"


def _sized(column: str, length: str = "length") -> str:
    # The length of null is written as -1, in one byte.
    return f"if({column} is null, 1, {_varint(f'{length}({column})')} + {length}({column}))"


def _varint(number: str) -> str:
    """Bytes of a number that is not negative, in zigzag."""
    steps = " ".join(f"when {number} < {1 << (7 * n - 1)} then {n}" for n in range(1, 5))
    return f"case {steps} else 5 end"
