"""Where in Kafka a message goes, as Spark SQL: the partition that Kafka's own clients choose, and the task that writes.

Kafka's producers hash the bytes of a key with 32-bit Murmur2 and take the rest by the number of partitions. The same
choice, made before the write, lets each partition be written by one task in order, and keeps rows of one key together
with what other producers write under that key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import TypeVar

from headrace.changes.refusal import StopReason

T = TypeVar("T", bound=Hashable)

_SEED, _FACTOR = 0x9747B28C, 0x5BD1E995
_MASK = 0xFFFFFFFF
# A part of every Spark; its default seed is Kafka's.
_TEXT_HASH = "'org.apache.commons.codec.digest.MurmurHash2', 'hash32'"


def murmur2(key: str) -> str:
    """Spark SQL for Kafka's hash of bytes that are not null, as a number from 0 to 2^31 - 1.

    Keys that are text are hashed by a Java method that takes text, the others (Avro) by arithmetic, several times
    slower for long keys.

    Args:
        key: Spark SQL of type binary.

    Source: org.apache.kafka.common.utils.Utils.murmur2 and toPositive.
    """
    text = f"cast({key} as string)"
    return (
        f"if(is_valid_utf8({text}), "
        f"cast(java_method({_TEXT_HASH}, {text}) as int) & 2147483647, "
        f"cast({_murmur2_of_bytes(key)} & 2147483647L as int))"
    )


def _murmur2_of_bytes(key: str) -> str:
    """The hash as an unsigned number in a bigint; no product in it reaches 2^63."""
    whole = f"length({key}) div 4"
    fours = f"transform(if({whole} = 0, cast(array() as array<bigint>), sequence(1L, {whole})), i -> {{four}})"
    numbers = fours.format(four=_little_endian(f"substring({key}, cast(i * 4 - 3 as int), 4)"))
    mixed = f"transform({numbers}, k -> {_times('k')})"
    mixed = f"transform({mixed}, k -> {_times('(k ^ shiftright(k, 24))')})"
    start = f"{_SEED}L ^ cast(length({key}) as bigint)"
    body = f"aggregate({mixed}, {start}, (h, k) -> {_times('h')} ^ k)"
    rest = f"substring({key}, cast({whole} * 4 + 1 as int), 3)"
    steps = (
        f"if(length({key}) % 4 = 0, h, {_times(f'(h ^ {_little_endian(rest)})')})",
        _times("(h ^ shiftright(h, 13))"),
        "h ^ shiftright(h, 15)",
    )
    # A lambda over an array of one is how SQL gives a value a name.
    named = f"array({body})"
    for step in steps:
        named = f"transform({named}, h -> {step})"
    return f"{named}[0]"


def _times(number: str) -> str:
    return f"({number} * {_FACTOR}L & {_MASK}L)"


def _little_endian(four: str) -> str:
    """Up to four bytes as a number whose lowest byte comes first."""
    digits = f"rpad(hex({four}), 8, '0')"
    turned = ", ".join(f"substring({digits}, {at}, 2)" for at in (7, 5, 3, 1))
    return f"cast(conv(concat({turned}), 16, 10) as bigint)"


def partition_of(partitions: Mapping[str, int], batch: int) -> str:
    """Spark SQL for the partition of a message (columns topic, partition, key).

    A partition that the format names stays. Messages without a key go to one partition per topic and batch, which
    moves on with the batches, so that they stay in order within a batch and no partition takes them all. A message of
    a topic that is not among these stops the query with `StopReason.NEW_TOPIC`.

    Args:
        partitions: how many partitions each topic has.
        batch: the batch's number.
    """
    count = by_topic(partitions)
    if set(partitions.values()) <= {1}:
        chosen = "0"
    else:
        # A literal would be compiled into the query, so that Spark compiles the query for every batch.
        number = f"cast(java_method('java.lang.Long', 'parseLong', '{batch}') as bigint)"
        chosen = f"if({count} = 1, 0, if(key is null, cast({number} % {count} as int), {murmur2('key')} % {count}))"
    known = ", ".join(_text(topic) for topic in sorted(partitions))
    # A topic that is null is Spark's to refuse.
    return f"if(coalesce(topic in ({known}), true), coalesce(partition, {chosen}), {StopReason.NEW_TOPIC.sql})"


def by_topic(facts: Mapping[str, T]) -> str:
    """Spark SQL for a whole number that each topic has (null: none); a short text where most topics have the same."""
    topics: dict[T, list[str]] = defaultdict(list)
    for topic, fact in sorted(facts.items()):
        topics[fact].append(topic)
    usual = max(topics, key=lambda fact: len(topics[fact]))
    others = [
        f"when topic in ({', '.join(_text(topic) for topic in named)}) then {_number(fact)}"
        for fact, named in topics.items()
        if fact != usual
    ]
    return f"case {' '.join(others)} else {_number(usual)} end" if others else f"{_number(usual)}"


def _number(fact: object) -> str:
    return "cast(null as int)" if fact is None else str(fact)


def _text(topic: str) -> str:
    # Kafka's topics have letters, digits, points, underlines and hyphens only; whatever else is asked for is quoted.
    escaped = topic.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def task_of(tasks: int) -> str:
    """Spark SQL for a number by whose hash Spark sends a message to its task: the partitions of a topic go round.

    Spark has no way to say the task itself (before 4.1), and by chance some tasks would get several partitions and
    others none.

    Args:
        tasks: how many tasks the rows are repartitioned to.
    """
    numbers = ", ".join(str(number) for number in _numbers_by_task(tasks))
    return f"element_at(array({numbers}), cast(pmod(crc32(cast(topic as binary)) + partition, {tasks}) as int) + 1)"


def _numbers_by_task(tasks: int) -> list[int]:
    """For each task the least number that Spark's hash partitioning sends to it."""
    by_task: dict[int, int] = {}
    number = 0
    while len(by_task) < tasks:
        by_task.setdefault(_spark_hash(number) % tasks, number)
        number += 1
    return [by_task[task] for task in range(tasks)]


def _spark_hash(number: int) -> int:
    """Spark's hash of an int: 32-bit Murmur3 with the seed 42, signed."""

    def rotated(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & _MASK

    k = rotated(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (rotated(42 ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
