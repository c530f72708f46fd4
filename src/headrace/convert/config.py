"""A Debezium connector's configuration as a pipeline file.

A property goes where an option of that name is declared (source, format, sink), under its own name. Whatever is left
is listed with the reason, and passwords become references to environment variables.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace import registry
from headrace.convert.connector_file import read_connector
from headrace.convert.converters import format_section
from headrace.convert.properties import Left, Properties
from headrace.convert.reasons import DEFAULTS, OF_SOME_SOURCES, REFUSED, reason, usual
from headrace.convert.transforms import routing
from headrace.errors import FileError, OptionError, first_of
from headrace.options import Option, secret_in_name
from headrace.pipeline.model import read_model
from headrace.registry import did_you_mean

_PACKAGE = "io.debezium.connector."
_CONNECTORS = {
    "sqlserver.SqlServerConnector": ("sqlserver", "SQL Server"),
    "oracle.OracleConnector": ("oracle", "Oracle"),
    "db2.Db2Connector": ("db2", "Db2"),
    "postgresql.PostgresConnector": ("postgresql", "PostgreSQL"),
    "mysql.MySqlConnector": ("mysql", "MySQL"),
    "mariadb.MariaDbConnector": ("mysql", "MariaDB"),
    "mongodb.MongoDbConnector": ("mongodb", "MongoDB"),
    "informix.InformixConnector": ("informix", "Informix"),
    "vitess.VitessConnector": ("vitess", "Vitess"),
    "spanner.SpannerConnector": ("spanner", "Spanner"),
    "cassandra.Cassandra4Connector": ("cassandra", "Cassandra"),
}
"""Debezium's connectors: the name that a source of Headrace would have, and that of the database."""
_ALWAYS: Mapping[str, Mapping[str, str]] = {"postgresql": {"messages": "true"}}
"""Options of a source by which it does what Debezium's connector always does."""
_SLOT = "Drop the connector's slot when the connector has stopped, or name another one: the first run makes it."
_NO_SOURCE = "To read what the connector writes into Kafka, use a source of type kafka."
_SIGNALS = "signal.data.collection"
_BROKERS = "KAFKA_BOOTSTRAP_SERVERS"
_OLD_NAMES = ("database.server.name", "database.history")
_SHAPE_OF_OLD_NAMES = "1.7"
# Options of a router are a transform's in Debezium, and a property of such a name means something else.
_OF_TRANSFORMS = ("topic_route_", "key_field_", "key_enforce_")
_IN_FLIGHT = "producer.max.in.flight.requests.per.connection"
_REFERENCE = re.compile(r"\$\{(?:env|file):[^}]*\}")
_STAND_INS = ("reference", "1", "true", "http://reference", "UTC")


@dataclass(frozen=True)
class Conversion:
    """A pipeline file made of a connector's configuration.

    Args:
        text: the whole file, with comments.
        carried: how many properties are in it.
        left: those that are not.
        environment: variables that have to be set before a run, each with what it holds.
        differences: what is done otherwise because nothing is said of it, one clause each.
    """

    text: str
    carried: int
    left: tuple[Left, ...]
    environment: Mapping[str, str]
    differences: tuple[str, ...]

    @property
    def lost(self) -> tuple[Left, ...]:
        """The properties that ask for something that the pipeline would not do."""
        return tuple(left for left in self.left if left.why != "not needed")


def convert(file: Path, *, bootstrap_servers: str = "") -> Conversion:
    """Make a pipeline file of a connector's configuration; it is read and checked as `headrace run` does.

    Nothing is connected to, and Spark is not started.

    Args:
        file: properties of Debezium Server or Kafka Connect, or Connect's JSON.
        bootstrap_servers: the brokers, which Connect has in its worker's configuration.

    Raises:
        OptionError: it is no Debezium connector's configuration, or asks for a source, sink, format or transform that
            does not exist here, or the pipeline would be none.
    """
    given = Properties(read_connector(file))
    pipeline = _Pipeline(given, bootstrap_servers)
    refused = [*pipeline.refused, *pipeline.problems()]
    if refused:
        # All that is to be done about the file is said at once.
        lost = [OptionError(str(left)) for left in given.left if left.why != "not needed"]
        raise first_of([*refused, *lost])
    carried = len({p.given for p in given.config.properties}) - len(given.left)
    differences = tuple(pipeline.differences())
    text = _text(given, pipeline.sections, differences)
    return Conversion(text, carried, tuple(given.left), dict(given.environment), differences)


class _Pipeline:
    """The sections of a pipeline file, filled from the properties.

    Raises:
        OptionError: as `convert`.
    """

    def __init__(self, given: Properties, bootstrap_servers: str) -> None:
        self._given = given
        self._file = given.config.file
        self.refused: list[OptionError] = []
        """What would make other messages."""
        source = self._source()
        self._kind = source["type"]
        format = self._format()
        sink = self._sink(bootstrap_servers)
        self.sections = {"source": source, "format": format, "sink": sink, "pipeline": self._run(format)}
        self._tables(source)
        self._salts(source)
        self._declared_options = {
            "source": tuple(registry.find("source", source["type"]).options),
            "format": tuple(
                option
                for option in registry.find("format", format["type"]).options
                if not option.name.startswith(_OF_TRANSFORMS)
            ),
        }
        for name in given.names():
            self._place(name)
        self.sections["source"] = {"type": source.pop("type"), **dict(sorted(source.items(), key=self._rank))}

    def differences(self) -> Iterable[str]:
        """Where a default of Debezium's is not the default here and the file says nothing."""
        for name, theirs in DEFAULTS.items():
            if name in OF_SOME_SOURCES and self._kind not in OF_SOME_SOURCES[name]:
                continue
            rooms = self._declared_options.items()
            different = [
                (room, option) for room, declared in rooms if (option := _declared(declared, name)) is not None
            ]
            is_listed = any(
                _declared((option,), other) is option for room, option in different for other in self.sections[room]
            )
            same = any(_fits(option, theirs) and option.parse(theirs) == option.default for _, option in different)
            if different and not is_listed and not same:
                yield f"{name}: {theirs} in Debezium, {_shown(different[0][1].default) or 'empty'} here"

    def _rank(self, item: tuple[str, str]) -> int:
        """Where the input has a property, so that the pipeline file follows its order."""
        name = item[0]
        driver = name.replace("database.", "driver.", 1)
        names = [p.name for p in self._given.config.properties]
        return next(
            (n for n, other in enumerate(names) if other in (name, driver) or other.startswith(f"{name}.with.")),
            len(names),
        )

    def problems(self) -> Iterable[OptionError]:
        """Why a run would refuse the pipeline, whose references are filled with examples to read it."""
        filled = {
            section: {name: self._stand_in(section, name, value) for name, value in values.items()}
            for section, values in self.sections.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / "pipeline.yaml"
            draft.write_text(_yaml(filled), encoding="utf-8")
            try:
                read_model(draft)
            except FileError as error:
                yield OptionError(f"'{self._file}' makes no pipeline. {error.sentence}", remedy=error.remedy)

    def _stand_in(self, section: str, name: str, value: str) -> str:
        if _REFERENCE.search(value) is None:
            return value
        if name.startswith("topic.creation."):
            return "1"
        option = _declared(self._declared_options.get(section, ()), name)
        return next((text for text in _STAND_INS if option is not None and _fits(option, text)), _STAND_INS[0])

    def _source(self) -> dict[str, str]:
        """Which source it is; its options come later."""
        kind = self._given.take("connector.class")
        if not kind:
            raise OptionError(
                f"'{self._file}' names no connector: the property 'connector.class' is missing.",
                remedy="A configuration of a Debezium source connector is wanted.",
            )
        known = registry.names("source")
        name, called = _CONNECTORS.get(kind.removeprefix(_PACKAGE), ("", ""))
        if not name or not kind.startswith(_PACKAGE):
            raise OptionError(
                f"'{kind}' is no source connector of Debezium.", remedy=f"Sources here: {', '.join(known)}."
            )
        if name not in known:
            raise OptionError(
                f"'{self._file}' captures {called}, for which Headrace has no source.",
                remedy=f"Sources here: {', '.join(known)}. {_NO_SOURCE}",
            )
        if self._given.peek("slot.name"):
            self._given.notes.append(_SLOT)
        return {"type": name, **_ALWAYS.get(name, {})}

    def _format(self) -> dict[str, str]:
        """The format with what converters, transforms and the topics' prefix say."""
        given = self._given
        for name, remedy in REFUSED.items():
            value = given.peek(name)
            if value is not None and not given.leave_usual(name, usual(self._kind, name)):
                error = OptionError(f"The property '{given.given(name)}' can't be '{value}' here.", remedy=remedy)
                self.refused.append(error)
                given.take(name)
        section = format_section(given, self.refused)
        section |= routing(given, self.refused, bare_json=_bare_json(section))
        prefix = next((n for n in ("topic.prefix", "database.server.name") if given.peek(n)), None)
        if prefix is None:
            sentence = "The property 'topic.prefix' is missing, with which all topics begin."
            self.refused.append(OptionError(sentence, remedy="Add it (database.server.name in Debezium 1)."))
        taken = given.take(prefix) if prefix is not None else None
        section["topic.prefix"] = given.value("topic.prefix", taken or _STAND_INS[0])
        if any(p.name.startswith(_OLD_NAMES) for p in given.config.properties):
            section["shape"] = _SHAPE_OF_OLD_NAMES
            given.notes.append("The names are of Debezium 1, and so is the shape of events. Today's is shape: '3'.")
        return section

    def _sink(self, bootstrap_servers: str) -> dict[str, str]:
        """The Kafka sink with its producer's settings and the making of topics."""
        given = self._given
        kind = given.take("sink.type")
        if given.config.server and kind != "kafka":
            error = f"'{self._file}' writes to the sink '{kind or ''}', which can't be converted."
            self.refused.append(OptionError(error, remedy="Only the sink kafka can."))
            for name in given.names(f"sink.{kind}."):
                given.leave(name, "not needed", "its sink can't be converted")
        section = {"type": "kafka", "bootstrap.servers": self._brokers(bootstrap_servers)}
        for name in given.names("producer."):
            value = given.peek(name) or ""
            few = name == _IN_FLIGHT and value.strip() in ("1", "2", "3", "4", "5")
            if not given.leave_usual(name, usual(self._kind, name)) and (few or not self._leave(name)):
                written = f"kafka.{name.removeprefix('producer.')}"
                section[written] = given.value(written, value, origin=given.given(name))
                given.take(name)
        for name in given.names("topic.creation."):
            section[name] = given.value(name, given.take(name) or "")
        return section

    def _brokers(self, asked: str) -> str:
        given, name = self._given, "producer.bootstrap.servers"
        if asked:
            if given.peek(name) is not None:
                given.leave(name, "not needed", "other brokers were given")
            return asked
        brokers, called = given.peek(name), given.given(name)
        if brokers is not None:
            given.take(name)
            return given.value("bootstrap.servers", brokers, _BROKERS, origin=called)
        return given.variable(_BROKERS, "the brokers, which Kafka Connect has in its worker's configuration")

    def _run(self, format: Mapping[str, str]) -> dict[str, str]:
        """Name, checkpoint and trigger."""
        given = self._given
        given.take("name")
        name = given.config.name or format["topic.prefix"]
        folder = re.sub(r"[^\w.-]+", "-", _REFERENCE.sub("", name)).strip("-.")
        section = {"name": name, "checkpoint": f"./checkpoint-{folder or 'pipeline'}"}
        interval = given.peek("poll.interval.ms")
        if interval is not None and re.fullmatch(r"\s*[1-9]\d*\s*", interval):
            section["trigger"] = f"{interval.strip()}ms"
            given.take("poll.interval.ms")
        return section

    def _tables(self, source: dict[str, str]) -> None:
        """Lists of tables as regular expressions, in their own words; lists of schemas where no tables are listed."""
        given = self._given
        listed = [kind for kind in ("include", "exclude") if given.peek(f"table.{kind}.list")]
        for kind in listed:
            patterns = [_table_pattern(part) for part in _parts(given.take(f"table.{kind}.list") or "")]
            source[f"table.{kind}.list"] = ",".join(patterns)
        schemas = next((kind for kind in ("include", "exclude") if given.peek(f"schema.{kind}.list")), None)
        if schemas is not None and not listed:
            parts = _parts(given.take(f"schema.{schemas}.list") or "")
            source[f"table.{schemas}.list"] = ",".join(rf"re:(?:{part})\..*" for part in parts)
        self._signal_table(source)

    def _signal_table(self, source: dict[str, str]) -> None:
        """The signal table among the tables: Debezium captures it whatever its lists say, and a start here refuses one
        that is not captured."""
        name, option = (self._given.peek(_SIGNALS) or "").strip(), "table.include.list"
        if not name or _REFERENCE.search(name):
            return
        names = [name, ".".join(name.split(".")[-2:])]
        excluded = source.get("table.exclude.list")
        if excluded is not None and _lists(excluded, names):
            self._given.leave(_SIGNALS, "not supported", "the table is in table.exclude.list, so it is not captured")
        elif option in source and not _lists(source[option], names):
            source[option] += f",{_table_pattern(re.escape(names[1]))}"

    def _salts(self, source: dict[str, str]) -> None:
        """The salts of hashes, which stand in names, as an environment variable."""
        first: str | None = None
        for name in self._given.names("column.mask.hash."):
            salt = secret_in_name(name)
            if salt is None:
                continue
            if first not in (None, salt):
                self._given.leave(name, "not supported", "all hashes have one salt here")
                continue
            first = salt
            written = name[: name.lower().index(".with.salt.")]
            source[written] = self._given.value(written, self._given.take(name) or "")
            source["column_mask_salt"] = self._given.variable("COLUMN_MASK_SALT", "the salt of the column masks")

    def _place(self, name: str) -> None:
        """Put a property where an option of its name is, or tell why there is none."""
        given = self._given
        text = given.peek(name) or ""
        if given.leave_usual(name, usual(self._kind, name)):
            return
        if not text.strip():
            given.leave(name, "not needed", "it is empty")
            return
        # `driver.` is the newer text form of what goes to the driver of the database.
        written = re.sub(r"^driver\.", "database.", name)
        carried, refusal, twin = False, "", ""
        for room, declared in self._declared_options.items():
            option, section = _declared(declared, written), self.sections[room]
            if option is None:
                continue
            same = next((n for n in section if option.prefix is None and _declared(declared, n) is option), "")
            if same:
                twin = same
                continue
            value = given.value(written, text, origin=given.given(name))
            problem = None if _REFERENCE.search(value) else _problem(option, value)
            if problem is None:
                section[written] = value
                carried = True
            refusal = refusal or problem or ""
        if carried:
            given.take(name)
        elif refusal:
            given.leave(name, "not supported", refusal)
        elif twin:
            given.leave(name, "not needed", f"{twin} says the same")
        elif not self._leave(name):
            known = [alias for declared in self._declared_options.values() for o in declared for alias in o.aliases]
            near = did_you_mean(name, known)
            given.leave(name, "unknown", near if near.startswith("Did you mean") else "no option has this name")

    def _leave(self, name: str) -> bool:
        """Leave a property that is known to have no counterpart; whether it is one."""
        known = reason(self._kind, name)
        if known is not None:
            self._given.leave(name, *known)
        return known is not None


def _bare_json(format: Mapping[str, str]) -> bool:
    """Whether neither keys nor values carry a schema."""
    wrapped = [value for name, value in format.items() if name.endswith(".schemas.enable")]
    return format["type"] == "debezium_json" and "true" not in wrapped


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _lists(patterns: str, names: Iterable[str]) -> bool:
    """Whether one of a list's patterns, as `_table_pattern` gives them, means a table that has these names."""
    expressions = [part.removeprefix("re:") if part.startswith("re:") else re.escape(part) for part in _parts(patterns)]
    try:
        return any(re.fullmatch(part, name, re.IGNORECASE) for part in expressions for name in names)
    except re.error:
        # Whoever reads the list says what is wrong with it.
        return True


def _table_pattern(part: str) -> str:
    """A table's pattern: its plain name where it means one table, else Debezium's regular expression."""
    plain = part.replace("\\.", ".")
    return plain if re.fullmatch(r"[\w.$@# -]+", plain) else f"re:{part}"


def _declared(declared: Iterable[Option], name: str) -> Option | None:
    """The option that has a property's name among its other names, or takes all names that begin so."""
    folded = name.lower()
    for option in declared:
        if folded == option.name or folded in (alias.lower() for alias in option.aliases):
            return option
    # A prefix of one word (`registry.`) is ours and no name of Debezium's.
    return next((o for o in declared if (o.prefix or "").count(".") > 1 and folded.startswith(o.prefix or "")), None)


def _problem(option: Option, value: str) -> str | None:
    """Why an option can't have a value; None where it can."""
    try:
        option.parse(value)
    except OptionError as error:
        return str(error)
    return None


def _fits(option: Option, value: str) -> bool:
    return _problem(option, value) is None


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return str(default)


def _text(given: Properties, sections: Mapping[str, Mapping[str, str]], differences: Iterable[str]) -> str:
    """The pipeline file: what to set, the sections, and what is not in them."""
    lines = [f"# Made from {given.config.file.name} by headrace convert."]
    lines += [f"# {note}" for note in dict.fromkeys(given.notes)]
    lines.append("# The connector's position is not taken over: the pipeline begins as snapshot.mode says.")
    if given.environment:
        lines += ["#", "# Set before a run:"]
        lines += [f"#   {name}: {holds}" for name, holds in given.environment.items()]
    differing = [f"#   {difference}." for difference in differences]
    if differing:
        lines += ["#", "# Defaults that differ from Debezium's; add the property to get Debezium's:", *differing]
    lines += ["", _yaml(sections)]
    if given.left:
        lines += ["# Not carried over:", *(f"#   {left}" for left in given.left), ""]
    return "\n".join(lines)


def _yaml(sections: Mapping[str, Mapping[str, str]]) -> str:
    """The sections, with numbers and booleans bare; all scalars of a pipeline file are read as text again."""
    plain = {name: {key: _scalar(value) for key, value in section.items()} for name, section in sections.items()}
    parts = (
        yaml.safe_dump({name: section}, sort_keys=False, allow_unicode=True, width=10_000)
        for name, section in plain.items()
    )
    return "\n".join(parts)


def _scalar(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text) else text
