"""Write the pages of `docs/reference` that come from the code: options, what each wire format carries, what Python
programs use, errors and metrics.

A test holds the pages against the code.

python docs/generate_reference.py
"""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headrace
from headrace import errors, registry
from headrace.changes.table_pattern import table_patterns
from headrace.convert.reasons import REFUSED, left_out
from headrace.formats.features import Feature, lost
from headrace.observe import metrics
from headrace.observe.completeness import Completeness
from headrace.observe.open_telemetry import parse_endpoint
from headrace.observe.server import parse_address
from headrace.options import Option
from headrace.pipeline.dead_letter import DeadLetterTableSettings, DeadLetterTopicSettings
from headrace.pipeline.kafka_source import KafkaTopics, OnErrorSettings
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.run import RunningPipeline
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

_TABLE_HEAD = "\n| option | type | default | meaning |\n|---|---|---|---|\n"
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

_PYTHON_HEAD = """# Python

<!-- Generated from the code by `python docs/generate_reference.py`; do not edit. -->

What `headrace` exports, and what its functions hand out. Anything else may change with any release ([what a version
promises](../upgrades.md#what-a-version-promises)). Everything is loaded when it is first used, so `import headrace`
costs nothing on executors.
"""
_PYTHON = {
    "Read and write changes": ["register", "tables", "decode", "encode", "typed"],
    "Tables that stay equal": ["apply_changes"],
    "Pipelines": ["load_pipeline", Pipeline, RunningPipeline],
    "Completeness": ["complete_until", Completeness],
    "The vocabulary": ["TableSchema", "TableId", "Column", "LogicalType"],
    "Write your own": ["Source", "Format", "Sink", "Settings", "option"],
    "Errors": ["HeadraceError"],
}
_ERRORS_HEAD = """# Errors

<!-- Generated from the code by `python docs/generate_reference.py`; do not edit. -->

Every error is one sentence that names what is wrong (an option, a table, a position, a server) and what to do. The
command line prints that sentence and exits with 2; on a terminal a second line names the page that says more. `--debug`
adds the stack trace. No error contains a password or the value of a cell. All of them are in `headrace.errors`, and a
program can catch `HeadraceError` for any. An error that is surely one table's alone has it in `table`; a pipeline may
[park that table](../repairs.md#a-table-that-is-parked) and go on with the others.

| error | means | more |
|---|---|---|
"""
_METRICS_HEAD = """# Metrics

<!-- Generated from the code by `python docs/generate_reference.py`; do not edit. -->

A run serves these to Prometheus, and sends them to OpenTelemetry, when its file has a section `observe`
([how](../completeness.md#numbers-for-monitoring)). Each has the label `pipeline`, besides those of its row. What is not
known is left out. From Python: `headrace.observe.metrics.metrics(running.progress())`.

| metric | kind | labels | meaning |
|---|---|---|---|
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
    parts.extend(_row(option) for option in (*DeadLetterTopicSettings.declared, *DeadLetterTableSettings.declared))
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


def python_page() -> str:
    """The page of what Python programs use."""
    listed = [name for names in _PYTHON.values() for name in names if isinstance(name, str)]
    assert {*listed, "__version__"} == set(headrace.__all__), "a name of the package has no place on the page"
    parts = [_PYTHON_HEAD]
    for title, names in _PYTHON.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            owner = getattr(headrace, name) if isinstance(name, str) else name
            parts.append(f"\n### {owner.__name__}\n\n")
            if inspect.isclass(owner):
                parts.append(f"{_described(owner)}\n{_members(owner)}")
            else:
                parts.append(f"```python\n{_signature(owner)}\n```\n\n{_described(owner)}\n")
    return "".join(parts)


def _signature(function: Any) -> str:
    """A function's first line, or one line for each argument."""
    said, shown = inspect.signature(function), []
    for parameter in said.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown and not any(s[:1] == "*" for s in shown):
            shown.append("*")
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        kind = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
        # An object that stands for "not given" has no spelling.
        value = "..." if type(parameter.default) is object else _literal(parameter.default)
        default = "" if parameter.default is parameter.empty else f"{' = ' if kind else '='}{value}"
        shown.append(f"{star}{parameter.name}{kind}{default}")
    result = "" if said.return_annotation is said.empty else f" -> {_annotation(said.return_annotation)}"
    line = f"def {function.__name__}({', '.join(shown)}){result}: ..."
    if len(line) <= 100:
        return line
    return f"def {function.__name__}(\n" + "".join(f"    {part},\n" for part in shown) + f"){result}: ..."


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _described(owner: Any) -> str:
    """A docstring as Markdown: its sections become lists."""
    lines, section = [], ""
    for line in (inspect.getdoc(owner) or "").splitlines():
        if head := re.fullmatch(r"(Args|Returns|Raises|Yields):", line):
            section = head[1]
            lines.append(f"**{section.replace('Args', 'Arguments')}**\n")
        elif section and (entry := re.fullmatch(r" {4}([*\w]+): (.*)", line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif section:
            # What goes on is indented as Markdown wants it.
            lines.append(f"  {line.strip()}" if lines[-1].startswith(("- ", "  ")) and line.strip() else line.strip())
        else:
            lines.append(line)
    return "\n".join(lines).rstrip() + "\n"


def _members(owner: type[Any]) -> str:
    """The methods and properties of a class, with their first sentences."""
    rows = []
    for name, member in vars(owner).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        arguments = [p.name for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
        call = "" if isinstance(member, property) else f"({', '.join(arguments)})"
        first = re.sub(r"\s+", " ", function.__doc__.strip().partition("\n\n")[0]).replace("|", "\\|")
        rows.append(f"| `{name}{call}` | {first} |\n")
    return "".join(["\n| member | what it does |\n|---|---|\n", *rows]) if rows else ""


def errors_page() -> str:
    """The page of errors, in the order of the code."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    kinds.sort(key=lambda kind: inspect.getsourcelines(kind)[1])
    rows = (f"| `{kind.__name__}` | {_first_line(kind)} | {_link(kind.page)} |\n" for kind in kinds)
    return _ERRORS_HEAD + "".join(rows)


def _link(page: str) -> str:
    """A link to a page from one beside the reference, named as its section or the page is; nothing for this page."""
    file, _, section = page.partition("#")
    if FOLDER.parent / file == FOLDER / "errors.md":
        return ""
    heading = (FOLDER.parent / file).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").partition(":")[0]
    return f"[{section.replace('-', ' ') or heading}]({os.path.relpath(page, 'reference')})"


def metrics_page() -> str:
    """The page of metrics, as the code makes them."""
    return _METRICS_HEAD + "".join(_metric_rows(ast.parse(inspect.getsource(metrics.all_metrics))))


def _metric_rows(code: ast.Module) -> Iterator[str]:
    nodes = list(ast.walk(code))
    named = {node.targets[0].id: node.value for node in nodes if isinstance(node, ast.Assign)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for call in sorted(calls, key=lambda call: call.lineno):
        if call.func.id in ("_one", "Metric"):
            name, kind, doc = (ast.literal_eval(part) for part in call.args[:3])
            values = call.args[3] if not isinstance(call.args[3], ast.Name) else named[call.args[3].id]
            keys = [key for node in ast.walk(values) if isinstance(node, ast.Dict) for key in node.keys]
            labels = ", ".join(f"`{ast.literal_eval(key)}`" for key in keys)
            yield f"| `{name}` | {kind} | {labels} | {doc} |\n"


PAGES = {
    FOLDER / "errors.md": errors_page,
    FOLDER / "metrics.md": metrics_page,
    FOLDER / "python.md": python_page,
    FOLDER / "options.md": options_page,
    FOLDER / "formats.md": formats_page,
    FOLDER / "debezium-properties.md": debezium_page,
}


_KINDS = {
    parse_address: "host:port",
    parse_endpoint: "URL",
    table_patterns: "patterns",
    computed_columns: "mapping",
}
"""Kinds whose function is not named for readers."""


def _first_line(owner: type[Any]) -> str:
    return (owner.__doc__ or "").strip().splitlines()[0]


def _row(option: Option) -> str:
    also = "".join(f"<br>also `{alias}`" for alias in option.aliases)
    kind = (
        " \\| ".join(f"`{c}`" if c else "nothing" for c in option.choices)
        or _KINDS.get(option.kind)
        or getattr(option.kind, "__name__", "text")
    )
    default = "**required**" if option.required else _shown(option.default)
    said = [option.doc, *(f"Called `{former.name}` before {former.until}." for former in option.former)]
    if option.goes is not None:
        said.append(f"**Goes with {option.goes.until}.** {option.goes.instead}")
    text = " ".join(said).replace("|", "\\|")
    return f"| `{option.name}`{also} | {kind} | {default} | {text} |\n"


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
