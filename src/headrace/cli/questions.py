"""Questions of commands: what `headrace init` needs for a file, and whether to do what a command has just shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace import registry
from headrace.errors import OptionError
from headrace.options import option_of

if TYPE_CHECKING:
    from headrace.settings import Component

DEFAULT_FORMAT = "debezium_json"
_SOURCES = ("postgresql", "mysql", "sqlserver", "db2", "oracle", "kafka")
_SINKS = ("delta", "iceberg", "kafka", "files", "jdbc")


@dataclass(frozen=True)
class Answers:
    """What a person said.

    Args:
        source: the kind of source.
        sinks: the kinds of sinks.
        format: of messages.
        of_source: options of the source.
        of_sinks: options of the sinks, by kind.
        password: of the source, for this process only.
    """

    source: str
    sinks: Sequence[str]
    format: str
    of_source: Mapping[str, str]
    of_sinks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    password: str = field(default="", repr=False)


def asked(
    source: str | None, sinks: Sequence[str] | None, format: str | None, given: Mapping[str, str], variable: str
) -> Answers:
    """Ask for what was not given; Enter takes what stands in brackets.

    Args:
        source: the kind of source, if it was given.
        sinks: the kinds of sinks, if they were given.
        format: of messages, if it was given.
        given: options of the source that were given.
        variable: the environment variable of the source's password, which is set for this process if it is not.
    """
    from headrace.pipeline.kafka_source import KafkaTopics
    from headrace.pipeline.new_file import component

    source = source or _chosen("Where do changes come from?", _SOURCES)
    origin: Any = KafkaTopics if source == "kafka" else component("source", source)
    of_source = {**given, **_options(origin, given)}
    if source == "kafka":
        format = format or _chosen("  format of the messages", _formats())
    asked_password = ""
    if any(option.name == "password" for option in origin.options) and variable not in os.environ:
        asked_password = _said("  password, to list the tables now (Enter for none)", "", hidden=True)
        if asked_password:
            os.environ[variable] = asked_password
    sinks = sinks or [_chosen("Where do they go?", _SINKS)]
    of_sinks = {sink: _options(component("sink", sink), {}) for sink in sinks}
    if any(component("sink", sink).takes == "messages" for sink in sinks):
        format = format or _chosen("  format of the messages", _formats())
    return Answers(source, sinks, format or DEFAULT_FORMAT, of_source, of_sinks, asked_password)


def _formats() -> Sequence[str]:
    return [DEFAULT_FORMAT, *(name for name in registry.names("format") if name != DEFAULT_FORMAT)]


def _options(kind: type[Component], given: Mapping[str, str]) -> dict[str, str]:
    """The options that a file can't do without, and what a person says to each."""
    from headrace.pipeline.new_file import IN_PLACE_OF

    required = [option.name for option in kind.options if option.required]
    answered = {option.name for name in given if (option := option_of(kind.options, name)) is not None}
    answers: dict[str, str] = {}
    for name in dict.fromkeys([*kind.examples, *required]):
        if name not in answered and IN_PLACE_OF.get(name) not in answered:
            answers[name] = _said(f"  {name}", kind.examples.get(name, ""))
    return answers


def _chosen(question: str, choices: Sequence[str]) -> str:
    return _said(f"{question} ({', '.join(choices)})", choices[0])


def _said(question: str, default: str, *, hidden: bool = False) -> str:
    return str(typer.prompt(question, default=default, hide_input=hidden, show_default=bool(default), err=True)).strip()


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def confirmed(yes: bool) -> bool:
    """Whether the user wants what was shown.

    Args:
        yes: whether the command line says so.

    Raises:
        OptionError: nobody can be asked.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise OptionError("Nothing was done, because nobody confirmed it.", remedy="Say --yes, or --dry-run to look.")
    return typer.confirm("Do this?")
