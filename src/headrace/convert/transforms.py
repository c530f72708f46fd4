"""The routing that a connector's transforms stand for; other transforms are refused, because topics would differ."""

from __future__ import annotations

from headrace.convert.properties import Properties
from headrace.errors import OptionError

_LOGICAL = "io.debezium.transforms.ByLogicalTableRouter"
_REGEX = "org.apache.kafka.connect.transforms.RegexRouter"
_MISSING = {
    "io.debezium.transforms.ExtractNewRecordState": (
        "Headrace writes whole events to Kafka and no flat rows.",
        "Leave it out here, and give it with its settings to the connectors that read the topics, where it makes the "
        "same rows of the same events; or write tables by a lake or database sink, which need no topic.",
    ),
    "io.debezium.transforms.Filter": (
        "Its condition is a script in another language.",
        "Leave it out, and write the condition in SQL as 'filter' of the pipeline's transforms.",
    ),
    **{
        f"org.apache.kafka.connect.transforms.{kind}$Value": (
            "It looks at the fields of the event's envelope and not at columns.",
            f"Leave it out, and write {options} in the pipeline's transforms.",
        )
        for kind, options in (
            ("ReplaceField", "'include_columns' or 'exclude_columns'"),
            ("MaskField", "'column.mask.with.<n>.chars'"),
        )
    },
    "io.debezium.transforms.ContentBasedRouter": ("Headrace routes by the table only.", "Use ByLogicalTableRouter."),
    "io.debezium.transforms.outbox.EventRouter": ("Headrace has no outbox router.", "Leave the transform out."),
}
_CARRIED = (
    "topic.regex",
    "topic.replacement",
    "key.enforce.uniqueness",
    "key.field.name",
    "key.field.regex",
    "key.field.replacement",
    "schema.name.adjustment.mode",
)


def routing(given: Properties, refused: list[OptionError], *, bare_json: bool) -> dict[str, str]:
    """The format's options for the router among the transforms; empty where there are no transforms.

    Args:
        given: the connector's properties.
        refused: gets an error for each transform that does something that Headrace does not.
        bare_json: whether messages are JSON without schemas, in which a routed message differs in its topic only.
    """
    names = [name.strip() for name in (given.take("transforms") or "").split(",") if name.strip()]
    options: dict[str, str] = {}
    for name in names:
        prefix = f"transforms.{name}."
        try:
            options = _router(given, name, prefix, options, bare_json=bare_json)
        except OptionError as error:
            refused.append(error)
            for left in list(given.names(prefix)):
                given.leave(left, "not needed", "its transform can't be converted")
    for name in [n for prefix in ("transforms.", "predicates") for n in given.names(prefix)]:
        if not any(name.startswith(f"transforms.{known}.") for known in names):
            given.leave(name, "not needed", "no transform uses it")
    return options


def _router(given: Properties, name: str, prefix: str, options: dict[str, str], *, bare_json: bool) -> dict[str, str]:
    """A router's options, where there is none yet.

    Raises:
        OptionError: as a reason for `routing` to refuse the transform.
    """
    kind = given.peek(f"{prefix}type") or ""
    called = given.given(f"{prefix}type")
    if kind not in (_LOGICAL, _REGEX):
        why, remedy = _MISSING.get(kind, ("Headrace has no such transform.", f"Known: {_LOGICAL}, {_REGEX}."))
        raise _refused(name, kind or f"{called} is missing", why, remedy)
    if given.peek(f"{prefix}predicate") is not None:
        raise _refused(name, kind, "Headrace has no predicates of transforms.", "Leave the predicate out.")
    if options:
        raise _refused(name, kind, "Headrace routes tables once.", "Make one router of them.")
    given.take(f"{prefix}type")
    return _logical(given, prefix) if kind == _LOGICAL else _regex(given, name, prefix, bare_json=bare_json)


def _logical(given: Properties, prefix: str) -> dict[str, str]:
    options = {}
    for option in _CARRIED:
        value = given.take(prefix + option)
        if value is not None:
            options[option] = given.value(option, value)
    cache = f"{prefix}logical.table.cache.size"
    if given.peek(cache) is not None:
        given.leave(cache, "not needed", "routes are made once per batch")
    _skip_others(given, prefix)
    return options


def _regex(given: Properties, name: str, prefix: str, *, bare_json: bool) -> dict[str, str]:
    if not bare_json:
        raise _refused(
            name,
            _REGEX,
            "It leaves the names of schemas as they were, which Headrace's router does not.",
            "Use ByLogicalTableRouter, or JSON without schemas.",
        )
    options = {
        "topic.regex": given.value("topic.regex", given.take(f"{prefix}regex") or ""),
        "topic.replacement": given.value("topic.replacement", given.take(f"{prefix}replacement") or ""),
        "key.enforce.uniqueness": "false",
    }
    given.notes.append("RegexRouter routes the topics of tables only, not those of transactions, heartbeats and DDL.")
    _skip_others(given, prefix)
    return options


def _skip_others(given: Properties, prefix: str) -> None:
    for name in given.names(prefix):
        given.leave(name, "not supported", "the router has no such setting")


def _refused(name: str, kind: str, why: str, remedy: str) -> OptionError:
    return OptionError(f"The transform '{name}' ({kind}) can't be converted. {why}", remedy=remedy)
