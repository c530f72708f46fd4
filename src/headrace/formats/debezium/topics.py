"""The topics of Debezium's messages, and its router of tables by a pattern.

Source: the topic naming and the transform ByLogicalTableRouter as Debezium's reference describes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.formats.debezium.connectors import EventShape, valid_topic
from headrace.formats.debezium.options import EventSettings

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_REFERENCE = re.compile(
    r"\\(?P<escaped>.)|\$(?:(?P<number>[0-9]+)|\{(?P<name>[A-Za-z][A-Za-z0-9]*)\})|(?P<plain>[^\\$])", re.S
)


@dataclass(frozen=True)
class Substitution:
    """A pattern and what takes the place of the text that it matches as a whole.

    Args:
        regex: the pattern.
        replacement: text with `$1`, `${name}` for the pattern's groups; a backslash takes the next character as it is.
        option: the option that holds the replacement, for messages.
    """

    regex: re.Pattern[str]
    replacement: str
    option: str

    def __post_init__(self) -> None:
        self._parts()

    def apply(self, text: str) -> str | None:
        """The new text; None where the pattern does not match the whole text."""
        if self.regex.fullmatch(text) is None:
            return None
        parts = self._parts()
        return self.regex.sub(lambda match: "".join(part(match) for part in parts), text, count=1)

    def _parts(self) -> list[Callable[[re.Match[str]], str]]:
        parts: list[Callable[[re.Match[str]], str]] = []
        at = 0
        while at < len(self.replacement):
            reference = _REFERENCE.match(self.replacement, at)
            if reference is None:
                self._refuse("holds a '$' or '\\' by itself")
            assert reference is not None
            at = reference.end()
            plain = reference["escaped"] or reference["plain"]
            if plain is not None:
                parts.append(lambda match, text=plain: text)  # type: ignore[misc]
                continue
            parts.append(self._group(reference["number"], reference["name"]))
        return parts

    def _group(self, number: str | None, name: str | None) -> Callable[[re.Match[str]], str]:
        if name is not None:
            if name not in self.regex.groupindex:
                self._refuse(f"names the group '{name}', which the pattern does not have")
            return lambda match: match[name] or ""
        assert number is not None
        # As in Java, a number takes as many digits as there are groups; the rest is text.
        digits = number
        while len(digits) > 1 and int(digits) > self.regex.groups:
            digits = digits[:-1]
        if int(digits) > self.regex.groups:
            self._refuse(f"refers to group {number}, but the pattern has {self.regex.groups}")
        return lambda match: (match[int(digits)] or "") + number[len(digits) :]

    def _refuse(self, why: str) -> None:
        raise OptionError(
            f"Option '{self.option}' of format 'debezium_json' {why}.",
            remedy="Refer to the pattern's groups as $1 or ${name}, and write a plain dollar sign as \\$.",
        )


@dataclass(frozen=True)
class TopicRoute:
    """Sends the events of tables to other topics.

    Args:
        topic: from a table's topic to the new one.
        key_field: the key field that tells the tables of one topic apart; None where keys stay as they are.
        identifier: from a table's topic to that field's value, which is the topic itself where None or not matching.
    """

    topic: Substitution
    key_field: str | None
    identifier: Substitution | None = None

    def key_value(self, topic: str) -> str:
        value = self.identifier.apply(topic) if self.identifier is not None else None
        return topic if value is None else value


@dataclass(frozen=True)
class TopicNames:
    """Where the messages of one source go.

    Args:
        prefix: the server's logical name, and the topic of schema changes.
        shape: the generation of events.
        delimiter: what stands between the parts of a topic.
        transaction: the topic of transaction edges.
        heartbeat: the topic of heartbeats.
        message: the topic of logical messages.
        route: the tables' way to other topics, if any.
    """

    prefix: str
    shape: EventShape
    delimiter: str
    transaction: str
    heartbeat: str
    message: str
    route: TopicRoute | None = None

    def unrouted(self, table: TableId, *, database: bool = True) -> str:
        """The topic of a table before any routing; `database` as `EventShape.topic` has it."""
        return self.shape.topic(self.prefix, table, self.delimiter, database=database)

    def routed(self, table: TableId, *, database: bool = True) -> str | None:
        """The topic to which a table is routed; None where it is not.

        Raises:
            OptionError: Kafka has no such topic.
        """
        if self.route is None:
            return None
        topic = self.route.topic.apply(self.unrouted(table, database=database))
        # The router leaves a message alone when nothing is left of its topic.
        if not topic:
            return None
        if not _LEGAL_TOPIC.fullmatch(topic):
            raise OptionError(
                f"Table {table} would be routed to '{topic}', which is not a valid topic name.",
                remedy="Topics have up to 249 letters, digits, '.', '_' and '-'; change 'topic_route_replacement'.",
            )
        return topic

    def of(self, table: TableId, *, database: bool = True) -> str:
        """The topic of a table's events.

        Raises:
            OptionError: Kafka has no such topic.
        """
        topic = self.routed(table, database=database) or self.unrouted(table, database=database)
        if not _LEGAL_TOPIC.fullmatch(topic):
            raise OptionError(
                f"The topic of table {table} would have {len(topic)} characters.",
                remedy="Topics have up to 249; write a shorter 'topic_prefix', or use a topic route.",
            )
        return topic

    @property
    def schema_changes(self) -> str:
        return valid_topic(self.prefix)


def topics(settings: EventSettings, shape: EventShape) -> TopicNames:
    """The topics as the format's options say.

    Raises:
        OptionError: options are missing or contradict another.
    """
    prefix, delimiter = settings.topic_prefix or "", settings.topic_delimiter
    if settings.transaction_topic and settings.topic_transaction != "transaction":
        raise OptionError(
            "Options 'transaction_topic' and 'topic_transaction' of format 'debezium_json' can't both be given.",
            remedy="The first is the whole topic, the second its last part; keep one.",
        )
    whole = (settings.transaction_topic or "").replace("${database.server.name}", prefix)
    return TopicNames(
        prefix=prefix,
        shape=shape,
        delimiter=delimiter,
        transaction=valid_topic(whole or delimiter.join((prefix, settings.topic_transaction))),
        heartbeat=valid_topic(delimiter.join((settings.heartbeat_topics_prefix, prefix))),
        message=valid_topic(delimiter.join((prefix, "message"))),
        route=_route(settings),
    )


def _route(settings: EventSettings) -> TopicRoute | None:
    topic = _substitution(settings, "topic_route_regex", "topic_route_replacement")
    identifier = _substitution(settings, "key_field_regex", "key_field_replacement")
    if topic is None:
        if identifier is not None:
            raise OptionError(
                "Option 'key_field_regex' of format 'debezium_json' needs 'topic_route_regex'.",
                remedy="Say which topics are routed, or leave it out.",
            )
        return None
    return TopicRoute(topic, settings.key_field_name if settings.key_enforce_uniqueness else None, identifier)


def _substitution(settings: EventSettings, regex: str, replacement: str) -> Substitution | None:
    given = {name: settings.get(name) for name in (regex, replacement)}
    if all(value is None for value in given.values()):
        return None
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise OptionError(
            f"Option '{missing[0]}' of format 'debezium_json' is missing.",
            remedy=f"'{regex}' and '{replacement}' belong together.",
        )
    return Substitution(given[regex], given[replacement], replacement)
