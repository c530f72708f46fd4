"""What a pipeline file says, checked: source, formats and sinks with their options, and how to run.

```yaml
source:   {type: sqlserver, hostname: db, database: sales, user: cdc, password: "${env:PW}", tables: [dbo.*]}
format:   {type: debezium_json, topic.prefix: sales}      # how sinks that take messages get them
sinks:                                                    # or `sink:` for one; each may have its own format
  - {type: kafka, bootstrap.servers: "k:9092"}
  - {type: delta, path: ./lake}
pipeline: {name: sales, checkpoint: ./checkpoint, trigger: 1s}
```

A list `transforms` may say which rows and columns go on and what is masked, and each sink may have `routes`, which
say what it gets and under which names (`headrace.pipeline.shaping.transforms`, `headrace.pipeline.shaping.routes`).

A section `observe` may say where metrics go: `observe: {prometheus: 127.0.0.1:9464}`.

Where the source is Kafka, its format may say `on_error: dead_letter`; then a section `dead_letter` is the sink of
messages that can't be read.

Relative paths (the checkpoint, and options of the kind `folder`) are relative to the file, so that a pipeline runs the
same from any folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from headrace import registry
from headrace.changes import TableId
from headrace.changes.table_pattern import EVERY_TABLE, table_patterns
from headrace.errors import FileError, OptionError
from headrace.formats.features import Feature
from headrace.observe.checkpoint import local_path
from headrace.options import Option, as_text, is_secret, secret_in_name, shown_name
from headrace.pipeline.components import (
    FormatSection,
    SourceSection,
    absolute,
    class_named,
    made_in,
    make_format,
    make_sink,
    parse_in,
    settings_in,
    sink_class,
    type_in,
    with_folders,
)
from headrace.pipeline.dead_letter import DeadLetters, DeadLetterTableSettings, DeadLetterTopicSettings
from headrace.pipeline.kafka_source import KafkaTopics, KafkaTopicsSettings, OnErrorSettings
from headrace.pipeline.parking import PARK, on_table_error
from headrace.pipeline.shaping.routes import Route, RoutedSinkSettings, Routes, RouteSettings
from headrace.pipeline.shaping.shape import Shaping
from headrace.pipeline.shaping.transforms import Transform, TransformSettings
from headrace.pipeline.shared_places import refuse_databases_alike, refuse_dead_letters_in_a_sink, refuse_same_places
from headrace.pipeline.target import Target, session_settings
from headrace.pipeline.watch import ObserveSettings
from headrace.pipeline.yaml_file import Document, Sections, YamlPath, hide, listed_sinks, read_sections, read_yaml
from headrace.sinks.base import Sink
from headrace.sources.base import Source
from headrace.sources.notifications import SINK
from headrace.sources.tables.rewrites import WARN

Made = TypeVar("Made")
[_ON_ERROR] = OnErrorSettings.declared
_QUOTED = re.compile(r"""(\w+)\s*=\s*["']([^"']+)["']""")
_ANY_TABLE = TableId("database", "schema", "table")
_TRIGGER = re.compile(r"(\d+) ?(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


@dataclass(frozen=True)
class Model:
    """A checked pipeline file.

    Args:
        file: where it was read from.
        name: the pipeline's name.
        checkpoint: path or URL, absolute.
        trigger: how often to look for changes, in Spark's words (`1 seconds`).
        lease_seconds: how long a run holds a checkpoint elsewhere without renewing it; 0 for no lease.
        on_table_error: what happens when one table can't be read or written: `stop` or `park`.
        source_type: the registered name of the source, or `kafka`.
        source_options: what the user gave, for Spark's reader; holds secrets.
        source: a database, or topics with the format that reads them.
        targets: the sinks in order.
        dead_letters: where messages go that can't be read; None where they do not.
        observe: where its numbers go.
        hidden: values that must never be shown: secrets, and what `${...}` stood for.
        warns_of_rewrites: tables are not read again whose rows a change of structure may have changed, because the user
            did not say that, and all sinks take messages.
    """

    file: Path
    name: str
    checkpoint: str
    trigger: str
    lease_seconds: int
    on_table_error: str
    source_type: str
    source_options: Mapping[str, Any] = field(repr=False)
    source: Source | KafkaTopics
    targets: tuple[Target, ...]
    dead_letters: DeadLetters | None
    observe: ObserveSettings
    hidden: tuple[str, ...] = field(repr=False)
    warns_of_rewrites: bool = False

    @property
    def sinks(self) -> tuple[tuple[str, Sink], ...]:
        """All sinks with their labels, that of dead letters last."""
        dead_letters = self.dead_letters
        named = [(target.label, target.sink) for target in self.targets]
        return (*named, *([] if dead_letters is None else [(f"dead_letter ({dead_letters.type})", dead_letters.sink)]))

    @property
    def session_settings(self) -> dict[str, str]:
        """Spark settings that the sinks need from a session's start.

        Raises:
            OptionError: two of them need different ones.
        """
        return session_settings(self.sinks)

    @property
    def parks(self) -> bool:
        """Whether a table that can't be read or written is parked, and the others go on."""
        return self.on_table_error == PARK

    @property
    def keeps_tables(self) -> bool:
        """Whether some sink keeps tables equal to the source."""
        return any(target.sink.keeps_tables for target in self.targets)

    def hide(self, text: str) -> str:
        """The text without any secret of this pipeline."""
        return hide(text, list(self.hidden))


def read_model(path: Path) -> Model:
    """Read and check a pipeline file without touching a server, a sink or Spark.

    Raises:
        OptionError: one sentence with file, line, the thing that is wrong, and the remedy.
    """
    document = read_yaml(path)
    sections = read_sections(document)
    settings = sections.pipeline
    checkpoint = absolute(settings.checkpoint, path)
    section = _source(document, sections, checkpoint)
    targets = _targets(document, sections, section.type)
    warned = _warned_of_rewrites(section, targets)
    section, warns = warned or _with_old_values(section, targets), warned is not None
    source = section.source
    if not isinstance(source, KafkaTopics):
        _check_counts(document, source, targets)
        _check_notifications(document, source, targets)
        made_in(document, ("sinks",), partial(refuse_databases_alike, targets, source.databases(), section.type))
    dead_letters = _dead_letters(document, sections.dead_letter, source)
    if dead_letters is not None:
        made_in(document, ("dead_letter",), partial(refuse_dead_letters_in_a_sink, targets, dead_letters, section.type))
    places = [(location, target.sink) for (_, location), target in zip(listed_sinks(sections), targets, strict=True)]
    for location, sink in [*places, *([] if dead_letters is None else [(("dead_letter",), dead_letters.sink)])]:
        _check_apart(document, location, sink, checkpoint)
    model = Model(
        file=path,
        name=settings.name,
        checkpoint=checkpoint,
        trigger=_trigger(document, settings.trigger),
        lease_seconds=settings.lease_seconds,
        on_table_error=made_in(
            document,
            ("pipeline", "on_table_error"),
            partial(on_table_error, settings.on_table_error, source, targets),
        ),
        source_type=section.type,
        source_options=section.options,
        source=source,
        targets=targets,
        dead_letters=dead_letters,
        observe=_observe(document, sections.observe),
        hidden=tuple(dict.fromkeys([*document.filled, *_secrets(document.data)])),
        warns_of_rewrites=warns,
    )
    made_in(document, ("sinks",), lambda: model.session_settings)
    return model


def _warned_of_rewrites(section: SourceSection, targets: Iterable[Target]) -> SourceSection | None:
    """The source of a pipeline whose sinks all take messages, where the user does not say what follows when a change of
    structure may have changed rows: who reads messages did not ask for a whole table. Null for other pipelines.
    """
    source, name = section.source, "on_rewrite"
    option = next((option for option in source.options if option.name == name), None)
    given = option is not None and any(map(option.has_name, section.options))
    if option is None or given:
        return None
    if not all(target.sink.takes == "messages" for target in targets):
        return None
    return replace(section, source=source.replaced(on_rewrite=WARN), options={**section.options, name: WARN})


def _with_old_values(section: SourceSection, targets: Iterable[Target]) -> SourceSection:
    """The source, with the tables that it reads again where a column was added with one value for all rows from before:
    those that the user names, and those whose rows reach one that is kept equal in another form, or with rows of other
    tables. All of them where a sink can't give the value to the rows that it has.
    """
    source, name = section.source, "reread_added_columns"
    option = next((option for option in source.options if option.name == name), None)
    kept = [target for target in targets if target.sink.keeps_tables]
    if option is None or not kept:
        return section
    shapings = [target.shaping for target in kept]
    changed = [transform.tables for shaping in shapings for transform in shaping.transforms]
    shared = [route.tables for shaping in shapings for route in shaping.routes.routes if route.merge]
    given = any(map(option.has_name, section.options))
    named = [source.settings.get(name)] if given else []
    if not all(target.sink.takes_old_values for target in kept):
        named = [EVERY_TABLE]
    texts = list(dict.fromkeys(pattern.text for patterns in (*named, *changed, *shared) for pattern in patterns))
    replaced = source.replaced(**{name: table_patterns(texts)})
    options = {key: value for key, value in section.options.items() if not option.has_name(key)}
    return replace(section, source=replaced, options={**options, name: as_text(texts)})


def _check_apart(document: Document, location: YamlPath, sink: Sink, checkpoint: str) -> None:
    """A sink in the checkpoint would write among Spark's own files."""
    for option in sink.options:
        given = sink.settings.get(option.name) if option.is_folder else None
        if given and _is_in(given, checkpoint):
            raise document.error(
                (*location, option.name),
                f"Option '{option.name}' is a folder in the checkpoint '{checkpoint}'.",
                "Name another one.",
            )


def _is_in(path: str, folder: str) -> bool:
    """Whether a folder is another one or lies in it, as far as their names say."""
    inner, outer = local_path(path), local_path(folder)
    if inner is not None and outer is not None:
        return inner.resolve().is_relative_to(outer.resolve())
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def _check_counts(document: Document, source: Source, targets: Iterable[Target]) -> None:
    """With transactions, what a format leaves out is not read either: the source counts the events of each."""
    counted = source.counted_operations
    if counted is None:
        return
    for target in targets:
        skipped = sorted(counted & target.format.left_out if target.format else ())
        if skipped:
            skipped_operations = ",".join(sorted(set("cud") - counted | set(skipped)))
            raise document.error(
                ("source",),
                f"END of a transaction would count operations ({', '.join(skipped)}) that the format of {target.label} "
                "leaves out.",
                f"Leave them out in the source too, for all sinks (skipped.operations: '{skipped_operations}'), or in "
                "no format.",
            )


def _check_notifications(document: Document, source: Source, targets: Iterable[Target]) -> None:
    """Notifications that no format sends would be lost in silence."""
    if SINK not in source.settings.get("notification_enabled_channels", ()):
        return
    if not any(target.format is not None and Feature.MESSAGE in target.format.writes for target in targets):
        raise document.error(
            ("source",),
            "No sink's format sends notifications, for which 'notification_enabled_channels' names the channel 'sink'.",
            "Give a sink the format debezium_json or debezium_avro, or use the channel log.",
        )


def find_mistakes(path: Path) -> list[OptionError]:
    """Every mistake of a pipeline file, where `read_model` stops at the first: one for each source, sink and format.

    Touches no server, no sink and no Spark. What a format only says when it writes (where messages go) is asked for.
    """
    try:
        document = read_yaml(path)
        sections = read_sections(document)
    except OptionError as error:
        return [error]
    checkpoint = absolute(sections.pipeline.checkpoint, path)
    mistakes: list[OptionError] = []

    def tried(part: Callable[[], Made]) -> Made | None:
        try:
            return part()
        except OptionError as error:
            mistakes.append(error)
            return None

    source = tried(lambda: _source(document, sections, checkpoint))
    kind = "" if source is None else source.type
    given = sections.format
    common = None if given is None else tried(lambda: make_format(document, given, ("format",)))
    transforms = tried(lambda: _transforms(document, sections.transforms, ("transforms",))) or ()
    for number, (section, location) in enumerate(listed_sinks(sections), 1):
        if given is not None and common is None and "format" not in section:
            # Its own mistake is reported already.
            continue
        target = tried(partial(_target, document, section, location, common, number, transforms))
        if target is not None and target.format is not None:
            named = (*location, "format") if "format" in section else ("format",)
            tried(partial(made_in, document, named, partial(target.format.topic_for, _ANY_TABLE, kind)))
    if source is not None:
        tried(partial(_dead_letters, document, sections.dead_letter, source.source))
    tried(lambda: _observe(document, sections.observe))
    tried(lambda: _trigger(document, sections.pipeline.trigger))
    if not mistakes:
        # What concerns several parts at once.
        tried(lambda: read_model(path))
    return list({error.message: error for error in mistakes}.values())


def _source(document: Document, sections: Sections, checkpoint: str) -> SourceSection:
    location: YamlPath = ("source",)
    section = sections.source
    kind = type_in(document, section, location, "source", [*registry.names("source"), "kafka"])
    given = {name: value for name, value in section.items() if name != "type"}
    if kind == "kafka":
        format = given.pop("format", None)
        if format is None:
            raise document.error(location, "Source 'kafka' needs a format.", "Add format: {type: debezium_json}.")
        format, on_error = _on_error(document, format, (*location, "format"), sections)
        ours = {name: value for name, value in given.items() if not KafkaTopics.is_client_setting(name)}
        if misplaced := next(filter(_ON_ERROR.has_name, ours), None):
            raise document.error(
                (*location, misplaced),
                f"Source 'kafka' has no option '{misplaced}'.",
                "It belongs to the source's format: format: {type: ..., on_error: ...}.",
            )
        options = parse_in(document, KafkaTopicsSettings, ours, location, "source 'kafka'")
        clients = {name: str(value) for name, value in given.items() if KafkaTopics.is_client_setting(name)}
        try:
            source_format = make_format(document, format, (*location, "format")).format
            made_in(document, (*location, "format"), partial(source_format.check, writes=False))
            topics = KafkaTopics(options, clients, source_format, on_error)
        except FileError:
            raise
        except OptionError as error:
            raise document.error(location, error.message, error.remedy) from None
        return SourceSection(kind, topics, given)
    cls: type[Source] = class_named(document, "source", kind, (*location, "type"))
    for option in cls.options:
        if option.in_other_names:
            given = _with_salt(document, option, given, location)
    given = with_folders(cls.options, given, document.path, checkpoint)
    options = settings_in(document, cls, given, location, f"source '{kind}'")
    return SourceSection(kind, made_in(document, location, lambda: cls(options)), given)


def _with_salt(document: Document, option: Option, given: dict[str, Any], location: YamlPath) -> dict[str, Any]:
    """The options with the salt that stands in a name as an option of its own: Spark hands over values as they are, but
    names in lower case."""
    salts = {name: salt for name in given if (salt := secret_in_name(name)) is not None}
    if not salts or any(map(option.has_name, given)):
        return given
    first, *others = salts
    other = next((name for name in others if salts[name] != salts[first]), None)
    if other is not None:
        raise document.error(
            (*location, other),
            f"Options '{shown_name(first)}' and '{shown_name(other)}' name different salts.",
            f"Give all hashes of a source one salt: set '{option.name}', and leave '.with.salt...' out of the names.",
        )
    return {**given, option.name: salts[first]}


def _on_error(document: Document, section: Any, location: YamlPath, sections: Sections) -> tuple[Any, str]:
    """A format's section without `on_error`, which the pipeline itself sees to, and what it says or goes without
    saying."""
    otherwise = "dead_letter" if sections.dead_letter is not None else "row" if _has_error_sink(sections) else "fail"
    if not isinstance(section, dict):
        return section, otherwise
    named = [name for name in section if _ON_ERROR.has_name(name)]
    given = {name: section[name] for name in named}
    wanted = parse_in(document, OnErrorSettings, given, location, f"format '{section.get('type')}'")
    return {name: value for name, value in section.items() if name not in named}, wanted.on_error or otherwise


def _has_error_sink(sections: Sections) -> bool:
    """Whether `error` rows rest in some sink. A sink that is not known says so elsewhere."""
    for section, _ in listed_sinks(sections):
        with suppress(OptionError, ModuleNotFoundError):
            if registry.find("sink", str(section.get("type"))).takes_errors:
                return True
    return False


def _observe(document: Document, section: dict[str, Any] | None) -> ObserveSettings:
    return parse_in(document, ObserveSettings, section or {}, ("observe",), "section 'observe'")


def _dead_letters(
    document: Document, section: dict[str, Any] | None, source: Source | KafkaTopics
) -> DeadLetters | None:
    wanted = isinstance(source, KafkaTopics) and source.on_error == "dead_letter"
    location: YamlPath = ("dead_letter",)
    if section is None:
        if wanted:
            raise document.error(
                ("source", "format"),
                "With on_error: dead_letter a section 'dead_letter' is needed.",
                "Add one, a sink like the others: dead_letter: {type: files, path: ./dead_letters}.",
            )
        return None
    if not wanted or not isinstance(source, KafkaTopics):
        raise document.error(
            location,
            "Nothing goes into 'dead_letter'.",
            "Say on_error: dead_letter in the format of a source of type kafka, or remove the section.",
        )
    kind, cls = sink_class(document, section, location)
    given = {name: value for name, value in section.items() if name != "type"}
    if "format" in given:
        raise document.error((*location, "format"), "Dead letters keep the bytes that came.", "Remove the format.")
    kinds = (DeadLetterTopicSettings, DeadLetterTableSettings)
    ours, others = kinds if cls.takes == "messages" else kinds[::-1]
    [dead_letter], [other] = ours.declared, others.declared
    if misplaced := next(filter(other.has_name, given), None):
        raise document.error(
            (*location, misplaced),
            f"Dead letters in sink '{kind}' have no '{misplaced}'.",
            f"Use '{dead_letter.name}', or leave it out.",
        )
    options = {name: value for name, value in given.items() if dead_letter.has_name(name)}
    sink = make_sink(document, cls, {n: v for n, v in given.items() if n not in options}, location, kind)
    name = parse_in(document, ours, options, location, "section 'dead_letter'").get(dead_letter.name)
    dead_letters = DeadLetters(kind, sink, source, name)
    for topic in source.settings.topics:
        if dead_letters.reads_itself(topic):
            raise document.error(
                location,
                f"Dead letters of topic '{topic}' would go to '{dead_letters.topic_of(topic)}', which this pipeline "
                "reads.",
                "Give 'dead_letter' another topic.",
            )
    return dead_letters


def _targets(document: Document, sections: Sections, kind: str) -> tuple[Target, ...]:
    listed = listed_sinks(sections)
    common = make_format(document, sections.format, ("format",)) if sections.format is not None else None
    shared = _transforms(document, sections.transforms, ("transforms",))
    targets = [
        _target(document, section, location, common, n, shared) for n, (section, location) in enumerate(listed, 1)
    ]
    made_in(document, ("sinks",), partial(refuse_same_places, targets, kind))
    if common is not None and not any(target.format is common.format for target in targets):
        raise document.error(("format",), "No sink uses 'format'.", "Remove it, or add a sink that takes messages.")
    return tuple(targets)


def _target(
    document: Document,
    section: dict[str, Any],
    location: YamlPath,
    common: FormatSection | None,
    number: int,
    transforms: tuple[Transform, ...],
) -> Target:
    kind, cls = sink_class(document, section, location)
    label = f"sink {number} ({kind})"
    shaping = _shaping(document, section, location, label, cls, transforms)
    given = {name: value for name, value in section.items() if name not in ("type", "format", *_SHAPING)}
    sink = make_sink(document, cls, given, location, kind)
    format_section = section.get("format")
    if cls.takes == "changes":
        if format_section is not None:
            raise document.error(
                (*location, "format"), f"Sink '{kind}' takes change rows and no messages.", "Remove its format."
            )
        return Target(kind, sink, None, "", label, shaping)
    format = make_format(document, format_section, (*location, "format")) if format_section is not None else common
    if format is None:
        raise document.error(
            location, f"Sink '{kind}' takes messages and has no format.", "Add format: {type: debezium_json}."
        )
    where = ("format",) if format_section is None else (*location, "format")
    made_in(document, where, partial(format.format.check, writes=True))
    return Target(kind, sink, format.format, f"{format.key} {shaping.key}", label, shaping, format.options)


_SHAPING = ("routes", "transforms", *(option.name for option in RoutedSinkSettings.declared))


def _shaping(
    document: Document,
    section: dict[str, Any],
    location: YamlPath,
    label: str,
    kind: type[Sink],
    shared: tuple[Transform, ...],
) -> Shaping:
    """What rows go through before a sink: the transforms of all sinks, its own, and its routes."""
    transforms = _transforms(document, section.get("transforms"), (*location, "transforms"), f" of {label}")
    parts = []
    listed = _mappings(document, section.get("routes"), (*location, "routes"), "{tables: dbo.orders, to: ...}")
    for number, (where, line) in enumerate(listed, 1):
        settings = parse_in(document, RouteSettings, line, where, f"route {number} of {label}")
        parts.append(made_in(document, where, partial(Route.of, settings)))
    given = {option.name: section.get(option.name) for option in RoutedSinkSettings.declared}
    leave_out = parse_in(document, RoutedSinkSettings, given, location, label).unrouted_tables == "leave_out"
    routes: Routes = made_in(document, (*location, "routes"), lambda: Routes(tuple(parts), leave_out))
    return Shaping((*shared, *transforms), routes, label, kind.takes)


def _transforms(document: Document, listed: Any, location: YamlPath, owner: str = "") -> tuple[Transform, ...]:
    transforms = []
    for number, (where, section) in enumerate(_mappings(document, listed, location, "{tables: dbo.*, filter: ...}"), 1):
        label = f"transform {number}{owner}"
        settings = parse_in(document, TransformSettings, section, where, label)
        transforms.append(made_in(document, where, partial(Transform.of, settings, label)))
    return tuple(transforms)


def _mappings(
    document: Document, listed: Any, location: YamlPath, example: str
) -> list[tuple[YamlPath, dict[str, Any]]]:
    if listed is None:
        return []
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, dict) for entry in listed):
        raise document.error(location, f"Key '{location[-1]}' must be a list of mappings.", f"Write: - {example}.")
    return [((*location, number), entry) for number, entry in enumerate(listed)]


def _trigger(document: Document, text: str) -> str:
    match = _TRIGGER.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise document.error(
            ("pipeline", "trigger"),
            f"A trigger can't be '{text}'.",
            "Write 500ms, 1s, 10s or 5m. A run with --once ends when everything is read.",
        )
    number, unit = match.groups()
    return f"{number} {_UNITS['ms' if unit.startswith(('ms', 'milli')) else unit[0]]}"


def _secrets(data: Any, name: str = "") -> list[str]:
    if isinstance(data, dict):
        named = [secret for key in data if isinstance(key, str) and (secret := secret_in_name(key))]
        return [*named, *(secret for key, value in data.items() for secret in _secrets(value, key))]
    if isinstance(data, list):
        return [secret for value in data for secret in _secrets(value, name)]
    if not (isinstance(data, str) and data and is_secret(name)):
        return []
    # Java may say a part of it (`password="..."` of a jaas config).
    return [data, *(part for named, part in _QUOTED.findall(data) if is_secret(named))]
