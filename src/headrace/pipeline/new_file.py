"""A pipeline file to begin with: what was said, what the source answers, and comments for the rest."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import yaml

from headrace import registry
from headrace.changes import TableSchema
from headrace.errors import HeadraceError, OptionError
from headrace.options import Option, is_secret, option_of
from headrace.pipeline.components import find_kind, missing_package
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.registry import did_you_mean
from headrace.settings import Component
from headrace.sources.base import Source
from headrace.sources.databases import Databases

_WIDTH = 118
IN_PLACE_OF: Mapping[str, str] = {"topics": "topics_pattern", "hostname": "dsn"}
"""Options that a file can do without where the other one is given."""


@dataclass(frozen=True)
class NewFile:
    """A pipeline file to begin with.

    Args:
        text: the file.
        notes: what a person should know, each as a sentence: what was found, and what has to be filled in.
    """

    text: str
    notes: tuple[str, ...]


def new_file(
    name: str,
    source: str,
    sinks: Sequence[str],
    format: str,
    given: Mapping[str, str],
    password_variable: str,
    *,
    of_sinks: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ask: bool = True,
) -> NewFile:
    """Write a pipeline file that `headrace check --level static` accepts. Nothing is created.

    Args:
        name: the pipeline's.
        source: the kind of source.
        sinks: kinds of sinks.
        format: of messages, where a sink takes or the source gives them.
        given: options of the source.
        password_variable: the environment variable with the source's password, which stands in no file.
        of_sinks: options of sinks, by kind.
        ask: whether the source is asked for its tables, when `given` says where it is.

    Raises:
        OptionError: a kind or an option is unknown, or an option's value is wrong.
    """
    notes: list[str] = []
    lines = [
        f"# Pipeline '{name}', written by headrace init. What each option means: docs/reference/options.md.",
        "#",
        "#   headrace check <this file>     whether it can run, and what to do where it can't",
        "#   headrace plan <this file>      what a run would do",
        "#   headrace run <this file>       until Ctrl-C; the next run goes on where it stopped",
        "#",
        "# Relative paths are relative to this file. ${env:NAME} stands for an environment variable.",
        "",
        "source:",
        f"  type: {source}",
    ]
    origin: type[Source] | type[KafkaTopics] = KafkaTopics if source == "kafka" else component("source", source)
    declared, schema = origin.options, origin.example_schema
    filled = _filled("source", source, origin, given, notes)
    lines += _options(declared, filled)
    if any(option.name == "password" for option in declared):
        lines += _password(password_variable, notes)
    if source == "kafka":
        reader = component("format", format)
        lines += ["  format:                     # how the messages are read", f"    type: {format}"]
        lines += [f"    {option}: {_scalar(value)}" for option, value in reader.examples.items()]
    else:
        # Here only to say at once what can't be.
        component("source", source).parse(filled)
        lines += list(_tables(source, filled, password_variable, notes, ask=ask and _is_known(source, given)))
    lines += _offered(origin, filled, "  ")
    kinds = [component("sink", sink) for sink in sinks]
    if any(kind.takes == "messages" for kind in kinds):
        lines += ["", "format:                         # of the messages", f"  type: {format}"]
        section = component("format", format)
        prefix = {"topic_prefix": name} if any(option.name == "topic_prefix" for option in section.options) else {}
        lines += _options(section.options, _filled("format", format, section, prefix, notes))
    lines += [
        "",
        "# transforms:                 # rows, columns and masks, for all sinks: docs/routes-and-transforms.md",
        f"#   - tables: {schema}.orders      # or a pattern",
        "#     filter: \"status <> 'draft'\"",
        "#     exclude_columns: [note]",
        "",
        "sinks:                        # each may have routes, which say what it gets and under which names",
    ]
    for sink, kind in zip(sinks, kinds, strict=True):
        values = _filled("sink", sink, kind, of_sinks.get(sink, {}), notes)
        lines.append(f"  - type: {sink}")
        lines += [f"  {line}" for line in _options(kind.options, values)]
        lines += _offered(kind, values, "    ")
        lines.append(f'    # routes: [{{tables: {schema}.*, to: "{{schema}}_{{table}}"}}]')
    if source == "kafka":
        kept = "# dead_letter: {type: files, path: ./dead_letters}"
        lines += ["", f"{kept}   # keeps messages that can't be read; without it such a message stops the run"]
    lines += [
        "",
        "pipeline:",
        f"  name: {_scalar(name)}",
        "  checkpoint: ./checkpoint    # the only state: keep it, and give each pipeline its own",
        "  trigger: 1s                 # how often it looks for changes",
        "",
        "# observe: {prometheus: 9464}   # GET /metrics on this machine; needs headrace[prometheus]",
    ]
    return NewFile("\n".join(lines) + "\n", tuple(dict.fromkeys(notes)))


def component(kind: str, name: str) -> Any:
    """The class of a source, format or sink.

    Raises:
        OptionError: there is none of that name.
    """
    if name not in registry.names(kind):
        known = [*registry.names(kind), *(["kafka"] if kind == "source" else [])]
        raise OptionError(f"Unknown {kind} '{name}'.", remedy=did_you_mean(name, known))
    return find_kind(kind, name)


def _filled(
    kind: str, name: str, component: type[Component] | type[KafkaTopics], given: Mapping[str, str], notes: list[str]
) -> dict[str, str]:
    """What was given under the options' own names, and examples for what a file can't do without."""
    declared, examples = component.options, component.examples
    values: dict[str, str] = {}
    for name_given, value in given.items():
        option = option_of(declared, name_given)
        if option is None and component is KafkaTopics and KafkaTopics.is_client_setting(name_given):
            values[name_given] = value
            continue
        if option is None:
            known = [accepted for option in declared for accepted in (option.name, *option.aliases)]
            raise OptionError(
                f"Unknown option '{name_given}' for {kind} '{name}'.", remedy=did_you_mean(name_given, known)
            )
        values[name_given if option.prefix else option.name] = value
    secret = next((one for one in values if is_secret(one)), None)
    if secret is not None:
        raise OptionError(
            f"Option '{secret}' is a secret, which is written to no file.",
            remedy="Put it into an environment variable, and name that with --password-env.",
        )
    required = [option.name for option in declared if option.required]
    for missing in dict.fromkeys([*examples, *required]):
        if missing not in values and IN_PLACE_OF.get(missing) not in values:
            values[missing] = examples.get(missing, "change-me")
            if not values[missing].startswith("./"):
                notes.append(f"Change '{missing}' of {kind} '{name}': '{values[missing]}' is an example.")
    return values


def _options(declared: Sequence[Option], values: Mapping[str, str]) -> list[str]:
    lines = []
    for option in declared:
        if option.name in values and option.name != "tables":
            listed = option.kind is list and "," in values[option.name]
            value: Any = [part.strip() for part in values[option.name].split(",")] if listed else values[option.name]
            lines.append(f"  {option.name}: {_scalar(value)}")
    names = {option.name for option in declared}
    return [*lines, *(f"  {name}: {_scalar(value)}" for name, value in values.items() if name not in names)]


def _password(variable: str, notes: list[str]) -> list[str]:
    line = f'password: "${{env:{variable}}}"'
    if variable in os.environ:
        return [f"  {line}"]
    notes.append(f"Set the password (export {variable}=...) and remove the # before 'password'.")
    return [f"  # {line}   # export {variable}=..., then remove the # at the beginning"]


def _is_known(source: str, given: Mapping[str, str]) -> bool:
    """Whether the user said where the source is, so that it may be asked."""
    return "database" in given and ("hostname" in given or "dsn" in given)


def _tables(source: str, values: Mapping[str, str], variable: str, notes: list[str], *, ask: bool) -> Iterator[str]:
    chosen, schema = values.get("tables", ""), component("source", source).example_schema
    schemas: Sequence[TableSchema] = ()
    if ask:
        kind = component("source", source)
        login = {"password": os.environ[variable]} if variable in os.environ else {}
        try:
            settings = kind.of({**values, **login})
            databases = Databases(settings)
            schemas = databases.tables()
            lacking = [one for each in databases.sources.values() for one in each.left_out()]
            notes += [f"Table '{one.table}': {one.sentence} {one.remedy}" for one in lacking]
        except (HeadraceError, ModuleNotFoundError) as error:
            ours = missing_package(error) if isinstance(error, ModuleNotFoundError) else error
            if ours is None:
                raise
            notes.append(f"The tables are not known: {ours}")
    if schemas:
        notes.append(f"{len(schemas)} captured table{' was' if len(schemas) == 1 else 's were'} found.")
        yield f"  tables:                     # those that are captured now; a pattern does too: {schema}.cust*"
        for table in schemas:
            key = f"key {', '.join(table.key)}" if table.key else "no key"
            columns = "1 column" if len(table.columns) == 1 else f"{len(table.columns):,} columns"
            yield f"    - {_scalar(table.id.path)}   # {key}; {columns}".replace("\n", " ")
    elif chosen:
        yield f"  tables: {_scalar([part.strip() for part in chosen.split(',')])}"
    else:
        yield f"  # tables: [{schema}.orders, {schema}.cust*]   # without it all tables that are set up for capture"


def _offered(component: type[Component] | type[KafkaTopics], values: Mapping[str, str], indent: str) -> list[str]:
    lines = []
    for offered in component.offered:
        option = next(option for option in component.options if option.name == offered)
        if option.name in values:
            continue
        default = "" if option.default in (None, "", ()) else _shown(option.default)
        shown = option.name.replace(".*", ".default.partitions")
        lines += [f"{indent}# {shown}: {default}".rstrip()]
        lines += [f"{indent}#     {line}" for line in textwrap.wrap(option.doc, _WIDTH - len(indent) - 6)]
    return lines


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _scalar(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()
