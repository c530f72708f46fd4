"""Write the pages of `docs/reference` that come from the code: options, and what each wire format carries.

A test holds the pages against the code.

python docs/generate_reference.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace import registry
from headrace.changes.table_pattern import table_patterns
from headrace.convert.reasons import REFUSED, left_out
from headrace.formats.features import Feature, lost
from headrace.observe.server import parse_address
from headrace.options import Option
from headrace.pipeline.dead_letter import LetterTableSettings, LetterTopicSettings
from headrace.pipeline.kafka_source import KafkaTopics, OnErrorSettings
from headrace.pipeline.shaping.routes import RoutedSinkSettings, RouteSettings
from headrace.pipeline.shaping.transforms import TransformSettings, computed_columns
from headrace.pipeline.watch import ObserveSettings

FOLDER = Path(__file__).parent / "reference"
_HEAD = """# Options

<!-- Generated from the code by `python docs/generate_reference.py`; do not edit. -->

An option has one name. It is accepted in snake case (YAML, Python), in camelCase (`spark.readStream.option`) and under
the other names of its row. An unknown name is an error that tells the nearest known one. Values of options whose name
says password, secret or token are never shown.

A list may be a YAML list, or text with commas between its parts; a part that holds a comma itself stands in a YAML
list, or in text that is a JSON array (`["a,b", "c"]`). An empty value is an error: what has no value is left out.
"""


_SHAPING_HEAD = """
## Transforms and routes

`transforms` is a list at the top of a pipeline file, for all sinks, or in a sink; `routes` a list in a sink, with
`unrouted_tables` beside it. [What they mean](../routes-and-transforms.md).
"""

_TABLE_HEAD = "\n| option | also | type | default | meaning |\n|---|---|---|---|---|\n"
_KAFKA = """

Of a pipeline only; a program reads topics with `spark.readStream.format("kafka")` and `headrace.decode`. `format:`
beside these options says how messages are read. Options that begin with `kafka.` go to Kafka's consumer as they are;
`kafka.isolation.level` is `read_committed` unless you set it."""
_ON_ERROR_HEAD = f"""
## Format of source `kafka`

Beside the format's own options, in a pipeline. [What it means](../unreadable-messages.md).
{_TABLE_HEAD}"""
_LETTERS_HEAD = f"""
## Section `dead_letter` of a pipeline

A sink like the others, for messages that can't be read, and one of these.
{_TABLE_HEAD}"""
_DEBEZIUM_HEAD = """# Properties of Debezium's connectors that have no counterpart

<!-- Generated from the code by `python docs/generate_reference.py`; do not edit. -->

What Headrace has under a property's own name stands in [the options](options.md). Of the others, `headrace convert`
says what stands here. It refuses a configuration with a property of the first table, unless its value asks for what is
done anyway; with `--force` it leaves the property out. `*` stands for any text.
"""
_IN_PART = """
One of these is carried in part. By Debezium's placeholder `debezium_avro` says of texts and bytes only that an image
does not carry them; a column of another type that an image does not carry is written as NULL.
"""
_FORMATS_HEAD = """# What each wire format carries

<!-- Generated from the code by `python docs/generate_reference.py`; do not edit. -->

Every format is read and written: `headrace.decode(df, format=...)` gives change rows, `headrace.encode(df, format=...)`
messages, so any format becomes any other. A change row says more than most messages can. The first table says what
decoding a format can give (`r`) and what encoding it can say (`w`). The second says, for each pair, what messages of
the first format say and the second has no place for; nothing else is lost on the way, which the tests check with the
same lists. Values themselves are exact in every pair; where column types are lost, a value is kept as its text.
"""


def options_page() -> str:
    """The page of options."""
    parts = [_HEAD]
    for kind in ("source", "format", "sink"):
        for name, owner in _owners(kind):
            parts.append(f"\n## {kind.capitalize()} `{name}`\n")
            parts.append(f"\n{_first_line(owner)}{_KAFKA if owner is KafkaTopics else ''}\n")
            parts.append(_TABLE_HEAD)
            parts.extend(_row(option) for option in owner.options)
        if kind == "source":
            parts.append(_ON_ERROR_HEAD)
            parts.extend(map(_row, OnErrorSettings.declared))
    parts.append(_LETTERS_HEAD)
    parts.extend(_row(option) for option in (*LetterTopicSettings.declared, *LetterTableSettings.declared))
    parts.append(_SHAPING_HEAD)
    for title, declared in (
        ("`transforms` of a pipeline", TransformSettings.declared),
        ("`routes` of a sink", RouteSettings.declared),
        ("A sink with routes", RoutedSinkSettings.declared),
    ):
        parts.append(f"\n## {title}\n{_TABLE_HEAD}")
        parts.extend(_row(option) for option in declared)
    parts.append("\n## Section `observe` of a pipeline\n\nWho may watch a run.\n")
    parts.append(_TABLE_HEAD)
    parts.extend(_row(option) for option in ObserveSettings.declared)
    return "".join(parts)


def _owners(kind: str) -> list[tuple[str, Any]]:
    """What there is of a kind, by name. Topics are a source of pipelines only, which the registry does not have."""
    topics = [("kafka", KafkaTopics)] if kind == "source" else []
    return sorted([*((name, registry.find(kind, name)) for name in registry.built_in_names(kind)), *topics])


def formats_page() -> str:
    """The page of what formats carry, and what is lost between two."""
    formats = {name: registry.find("format", name) for name in registry.built_in_names("format")}
    parts = [_FORMATS_HEAD, "\n## Reading and writing\n\n| | " + " | ".join(f"`{name}`" for name in formats) + " |\n"]
    parts.append("|---" * (len(formats) + 1) + "|\n")
    for feature in Feature:
        marks = [("r" if feature in f.reads else "") + ("w" if feature in f.writes else "") for f in formats.values()]
        parts.append(f"| {feature} | " + " | ".join(marks) + " |\n")
    parts.append(_IN_PART)
    parts.append("\n## Lost between two formats\n\n| from | to | what the second can't say |\n|---|---|---|\n")
    for source, read in formats.items():
        for target, written in formats.items():
            missing = ", ".join(lost(read.reads, written.writes)) or "nothing"
            parts.append(f"| `{source}` | `{target}` | {missing} |\n")
    return "".join(parts)


def debezium_page() -> str:
    """The page of the connectors' properties that have no counterpart."""
    sources = registry.built_in_names("source")
    taking = {
        name: {spelling.lower() for option in registry.find("source", name).options for spelling in option.aliases}
        for name in sources
    }
    parts = [_DEBEZIUM_HEAD]
    rows = list(left_out())
    refused = [("", name, "not supported", text) for name, text in REFUSED.items()]
    for title, why, given in (
        ("Refused", "not supported", [*refused, *rows]),
        ("Left out, because nothing is lost without it", "not needed", rows),
    ):
        parts.append(f"\n## {title}\n\n| property | sources | reason |\n|---|---|---|\n")
        for source, name, because, text in sorted(given, key=lambda row: (row[1], row[0])):
            others = [other for other in sources if source in ("", other) and name.lower() not in taking[other]]
            if because == why and others:
                named = "all" if len(others) == len(sources) else ", ".join(f"`{other}`" for other in others)
                parts.append(f"| `{name}` | {named} | {text.rstrip('.')} |\n")
    return "".join(parts)


PAGES = {
    FOLDER / "options.md": options_page,
    FOLDER / "formats.md": formats_page,
    FOLDER / "debezium-properties.md": debezium_page,
}


_KINDS = {
    parse_address: "host:port",
    table_patterns: "patterns",
    computed_columns: "mapping",
}
"""Kinds whose function is not named for readers."""


def _first_line(owner: type[Any]) -> str:
    return (owner.__doc__ or "").strip().splitlines()[0]


def _row(option: Option) -> str:
    also = ", ".join(f"`{alias}`" for alias in option.aliases)
    kind = (
        " \\| ".join(f"`{c}`" for c in option.choices)
        or _KINDS.get(option.kind)
        or getattr(option.kind, "__name__", "text")
    )
    default = "**required**" if option.required else _shown(option.default)
    said = [option.doc, *(f"Called `{former.name}` before {former.until}." for former in option.former)]
    if option.goes is not None:
        said.append(f"**Goes with {option.goes.until}.** {option.goes.instead}")
    text = " ".join(said).replace("|", "\\|")
    return f"| `{option.name}` | {also} | {kind} | {default} | {text} |\n"


def _shown(default: Any) -> str:
    if default in ("", None, (), {}):
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, (tuple, list, frozenset)):
        return "`" + ",".join(map(str, default)) + "`"
    return f"`{default}`"


if __name__ == "__main__":
    for page, render in PAGES.items():
        page.write_text(render(), encoding="utf-8")
