"""Whether a pipeline can run, found out in four steps, each of which includes those before it.

| level | what is looked at |
|---|---|
| `static` | the file: sections, options, names, types, topics. Nobody is asked |
| `connect` | whether the source and the sinks are reachable and take the login |
| `privileges` | what the logins may not do at the source and at the sinks, each with the statement that grants it |
| `plan` | what would be captured, and where it would go |

Nothing stays behind and no Spark is started. A level that finds something wrong is the last one.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from headrace import registry
from headrace.changes import TableId, TableSchema
from headrace.changes.table import LIST_SCHEMAS
from headrace.errors import HeadraceDeprecationWarning, HeadraceError
from headrace.formats.base import Format
from headrace.formats.features import Feature
from headrace.observe.checkpoint import LAST_RUN, committed_batch, local_path, open_folder
from headrace.observe.kept_offsets import kept_topic_ids
from headrace.permissions import MissingPermission
from headrace.pipeline.cascades import described
from headrace.pipeline.checkpoint import check_sound, differences, holder
from headrace.pipeline.components import missing_package
from headrace.pipeline.kafka_source import KafkaTopics, loss, made_again, trimmed
from headrace.pipeline.model import Model, find_mistakes, read_model
from headrace.pipeline.plan import PipelinePlan, TablePlan, plan_pipeline
from headrace.pipeline.target import Target
from headrace.pipeline.written_tables import captured_tables, names_at
from headrace.sinks.base import Sink
from headrace.sinks.kafka.permissions import has_kafka_client, kafka_jvm
from headrace.sources.databases import Databases

_PATIENCE = {"default.api.timeout.ms": "10000", "request.timeout.ms": "5000"}


class Level(StrEnum):
    """How far a check goes."""

    STATIC = "static"
    CONNECT = "connect"
    PRIVILEGES = "privileges"
    PLAN = "plan"


class Verdict(StrEnum):
    """What a finding means."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; a run starts all the same."""
    WRONG = "wrong"
    """A run would stop."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Args:
        level: at which level.
        verdict: what it means.
        subject: what it is about: `file`, `source`, `sink 1 (delta)`, a table.
        sentence: what was found.
        remedy: what to do about it; empty where nothing.
    """

    level: Level
    verdict: Verdict
    subject: str
    sentence: str
    remedy: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "level": self.level.value,
            "verdict": self.verdict.value,
            "subject": self.subject,
            "sentence": self.sentence,
            "remedy": self.remedy or None,
        }


@dataclass(frozen=True)
class Check:
    """What a check found.

    Args:
        file: the pipeline file.
        level: how far it was to go.
        reached: how far it got.
        findings: in the order of looking.
    """

    file: Path
    level: Level
    reached: Level
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.verdict is not Verdict.WRONG for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "file": str(self.file),
            "level": self.level.value,
            "reached": self.reached.value,
            "passed": self.passed,
            "findings": [finding.to_json() for finding in self.findings],
        }


def check_file(path: Path, level: Level = Level.PLAN) -> Check:
    """Check a pipeline file up to a level. Secrets stand in no finding."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mistakes = find_mistakes(path)
        model = None if mistakes else read_model(path)
    findings = [Finding(Level.STATIC, Verdict.WRONG, "file", error.message, error.remedy) for error in mistakes]
    findings += _going(caught)
    if model is None:
        return Check(path, level, Level.STATIC, tuple(findings))
    reached = Level.STATIC
    for reached in list(Level)[: list(Level).index(level) + 1]:
        shown = [_hidden(model, finding) for finding in _STEPS[reached](model)]
        findings += shown
        if any(finding.verdict is Verdict.WRONG for finding in shown):
            break
    return Check(path, level, reached, tuple(findings))


def _going(caught: Iterable[warnings.WarningMessage]) -> list[Finding]:
    """What the file has that a later release does not take; other warnings are shown as they would have been."""
    tables: dict[str, None] = {}
    for warning in caught:
        if issubclass(warning.category, HeadraceDeprecationWarning):
            tables[str(warning.message)] = None
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return [Finding(Level.STATIC, Verdict.NOTE, "file", sentence) for sentence in tables]


def _hidden(model: Model, finding: Finding) -> Finding:
    return Finding(
        finding.level, finding.verdict, finding.subject, model.hide(finding.sentence), model.hide(finding.remedy)
    )


def _static(model: Model) -> Iterator[Finding]:
    sinks = ", ".join(target.type for target in model.targets)
    yield Finding(Level.STATIC, Verdict.OK, "file", f"Pipeline '{model.name}' from {model.source_type} to {sinks}.")
    if isinstance(model.source, KafkaTopics):
        yield from _types_of(model, model.source.format)
    else:
        driver = model.source.settings.get("driver")
        if driver is not None:
            yield from _tried(Level.STATIC, "source", lambda: _find_driver(driver), silent=True)
    if importlib.util.find_spec("pyspark") is None:
        yield Finding(
            Level.STATIC,
            Verdict.NOTE,
            "file",
            "PySpark is not installed here, so the pipeline can't run here.",
            "Run pip install 'headrace[spark]'.",
        )


def _types_of(model: Model, format: Format) -> Iterator[Finding]:
    """Whether tables can be made of the messages of a feed."""
    if not model.keeps_tables or format.settings.schema is not None:
        return
    # A format of somebody else's may leave open what its messages say.
    if format.reads and Feature.SCHEMA not in format.reads:
        yield Finding(
            Level.STATIC,
            Verdict.WRONG,
            "source",
            f"Messages of format '{format.name}' do not have the types of columns, which tables need.",
            LIST_SCHEMAS,
        )
    elif format.types_sent_by:
        yield Finding(
            Level.STATIC,
            Verdict.NOTE,
            "source",
            f"Messages of format '{format.name}' have the types of columns only where their writer sends them "
            f"({format.types_sent_by}). Tables need them.",
            LIST_SCHEMAS,
        )


def _find_driver(name: str) -> str:
    registry.find("driver", name)
    return ""


def _connect(model: Model) -> Iterator[Finding]:
    if isinstance(model.source, KafkaTopics):
        yield from _tried(Level.CONNECT, "source", partial(_asked_broker, model, model.source))
    else:
        for name, source in Databases(model.source).sources.items():

            def connected(name: str = name, source: Any = source) -> str:
                source.connect()
                return f"Database '{name}' takes the login." if name else "The server takes the login."

            yield from _tried(Level.CONNECT, "source", connected)
    for label, sink in model.sinks:
        yield from _tried(Level.CONNECT, label, sink.reach)
    if local_path(model.checkpoint) is None:
        yield Finding(Level.CONNECT, Verdict.NOTE, "checkpoint", "It is elsewhere and was not looked at.")
        return
    try:
        check_sound(model.checkpoint, model.source_type)
        before = open_folder(model.checkpoint, None).text(LAST_RUN)
    except HeadraceError as error:
        yield from _failed(Level.CONNECT, "checkpoint", error)
        before = None
    for sentence in differences(model, before):
        remedy = "What was written stays as it is; with a new checkpoint all of it comes in the new form."
        yield Finding(Level.CONNECT, Verdict.NOTE, "checkpoint", sentence, remedy)
    if (by := holder(model.checkpoint)) is not None:
        running = f"The pipeline runs now (process {by.process})."
        yield Finding(Level.CONNECT, Verdict.NOTE, "checkpoint", running, "A second run would be refused.")


def _asked_broker(model: Model, topics: KafkaTopics) -> str:
    """Whether Kafka takes the login, by its own client, and whether the topics hold all that a first start needs."""
    topics.check()
    if not has_kafka_client():
        return "A broker answers; whether it takes the login is not known, because PySpark is not installed here."
    with kafka_jvm() as jvm:
        held = topics.held(jvm, _PATIENCE)
        again = made_again(_kept_ids(model), topics.ids(jvm, _PATIENCE)())
    if again and topics.settings.fail_on_data_loss:
        raise loss(again)
    lacking = trimmed(held) if topics.settings.starting_offsets == "earliest" and _is_new(model) else None
    if lacking is not None and topics.settings.on_trimmed == "fail" and model.keeps_tables:
        raise lacking
    of = "1 topic" if len(held) == 1 else f"{len(held):,} topics"
    worth_knowing = [error.message for error in (lacking, loss(again) if again else None) if error is not None]
    absent = [sentence] if (sentence := topics.absent(held)) else []
    return " ".join([f"Kafka takes the login; it has {of} to read.", *absent, *worth_knowing])


def _kept_ids(model: Model) -> Mapping[str, str]:
    return {} if local_path(model.checkpoint) is None else kept_topic_ids(open_folder(model.checkpoint, None))


def _is_new(model: Model) -> bool:
    """Whether nothing was read yet; so it is taken for where the checkpoint is elsewhere."""
    return local_path(model.checkpoint) is None or committed_batch(open_folder(model.checkpoint, None)) is None


def _privileges(model: Model) -> Iterator[Finding]:
    level = Level.PRIVILEGES
    captured: Sequence[TableSchema] = ()
    if isinstance(model.source, KafkaTopics):
        yield Finding(level, Verdict.NOTE, "source", "What the login may do in Kafka is not checked.")
    else:
        captured, unread = captured_tables(model, model.source)
        stops: set[str] = set()
        for name, source in Databases(model.source).sources.items():
            try:
                missing = source.missing_permissions()
            except Exception as error:
                yield from _failed(level, "source", error)
                continue
            if missing is None:
                yield Finding(
                    level, Verdict.NOTE, "source", f"Source '{source.name}' can't tell what its login may do."
                )
            elif not missing:
                where = f" in database '{name}'" if name else ""
                yield Finding(level, Verdict.OK, "source", f"The login has every permission{where}.")
            yield from _missing("source", missing or ())
            stops.update(one.sentence for one in missing or () if one.required)
            health = source.health()
            if health.retained_bytes is not None:
                verdict = Verdict.NOTE if health.headroom_is_small else Verdict.OK
                yield Finding(level, verdict, "source", health.sentence, health.remedy)
        if stops:
            # The next level would say what is wrong with the tables, and is not reached.
            findings = (finding for error in unread for finding in _failed(level, "source", error))
            yield from (finding for finding in findings if finding.sentence not in stops)
    for target in model.targets:
        tables, topics = names_at(model, target, captured)
        yield from _sink_permissions(target.label, target.sink, tables, topics)
    if model.dead_letters is not None:
        yield from _sink_permissions(f"dead_letter ({model.dead_letters.type})", model.dead_letters.sink, [], [])


def _sink_permissions(label: str, sink: Sink, tables: Sequence[TableId], topics: Sequence[str]) -> Iterator[Finding]:
    level = Level.PRIVILEGES
    try:
        permissions = sink.permissions(tables, topics)
    except Exception as error:
        yield from _failed(level, label, error)
        return
    if permissions is None:
        return
    if not permissions.known or not permissions.missing:
        yield Finding(level, Verdict.OK if permissions.known else Verdict.NOTE, label, permissions.summary)
    yield from _missing(label, permissions.missing)


def _missing(label: str, missing: Iterable[MissingPermission]) -> Iterator[Finding]:
    for permission in missing:
        verdict = Verdict.WRONG if permission.required else Verdict.NOTE
        yield Finding(Level.PRIVILEGES, verdict, label, permission.sentence, permission.remedy)


def _plan(model: Model) -> Iterator[Finding]:
    try:
        plan = plan_pipeline(model)
    except Exception as error:
        yield from _failed(Level.PLAN, "source", error)
        return
    yield Finding(Level.PLAN, Verdict.OK, "source", summary(plan))
    for table in plan.tables:
        yield Finding(Level.PLAN, Verdict.OK, table.table, table_text(table))
        for target in table.targets:
            if target.stop:
                yield Finding(Level.PLAN, Verdict.WRONG, f"{table.table} in {target.sink}", target.stop, target.remedy)
    if any(target.shaping.has_sql for target in model.targets):
        text = "Of expressions in transforms only names of columns were looked at; the rest needs Spark."
        yield Finding(Level.PLAN, Verdict.NOTE, "file", text, "headrace plan looks at all of it.")
    for sentence in (*plan.unmatched, *([plan.rewrites] if plan.rewrites else []), *plan.unsaid):
        yield Finding(Level.PLAN, Verdict.NOTE, "file", sentence)
    if not isinstance(model.source, KafkaTopics):
        yield from _unlogged(Databases(model.source), model.targets)
    for path in plan.uncaptured:
        text, remedy = "It is not captured any more.", "Have it captured again, or take it off 'tables'."
        yield Finding(Level.PLAN, Verdict.NOTE, path, text, remedy)
    for table_gone in plan.gone:
        yield Finding(Level.PLAN, Verdict.NOTE, table_gone, "It was captured up to now and would not be any more.")


def _unlogged(databases: Databases, targets: Sequence[Target]) -> Iterator[Finding]:
    several = len(databases.sources) > 1
    for name, source in databases.sources.items():
        for lack in (*source.left_out(), *source.unlogged(), *described(source.cascades(), targets)):
            table = f"{name}.{lack.table}" if several else lack.table
            yield Finding(Level.PLAN, Verdict.NOTE, table, lack.sentence, lack.remedy)
        for kept in source.restricted_reads():
            table = f"{name}.{kept.table}" if several else kept.table
            verdict = Verdict.WRONG if kept.certain else Verdict.NOTE
            yield Finding(Level.PLAN, verdict, table, kept.sentence, kept.remedy)
        without_place = [t.label for t in targets if t.sink.settings.get("unrepresentable") in ("fail", "null")]
        for key in source.misfit_keys() if without_place else ():
            table = f"{name}.{key.table}" if several else key.table
            remedy = (
                f"Set the option 'unrepresentable' of {', '.join(without_place)} to text, which keeps such columns "
            )
            remedy += "as texts in a new target, in keys as well, or correct these rows."
            yield Finding(Level.PLAN, Verdict.NOTE, table, key.sentence, remedy)


_STEPS: dict[Level, Callable[[Model], Iterator[Finding]]] = {
    Level.STATIC: _static,
    Level.CONNECT: _connect,
    Level.PRIVILEGES: _privileges,
    Level.PLAN: _plan,
}


def summary(plan: PipelinePlan) -> str:
    """What would be read, in one sentence."""
    if plan.topics:
        return (
            f"Topics {', '.join(plan.topics)}; {'from the beginning' if plan.batch is None else 'from the checkpoint'}."
        )
    count = len(plan.tables)
    fresh = [table for table in plan.tables if table.snapshot in ("begins", "goes on")]
    rows = sum(max(table.rows, 0) for table in fresh)
    known = (
        f", about {rows:,} row{'' if rows == 1 else 's'}" if fresh and all(table.rows >= 0 for table in fresh) else ""
    )
    return f"{count:,} table{'' if count == 1 else 's'}, {len(fresh):,} with a snapshot{known}."


def table_text(table: TablePlan, *, targets: bool = True) -> str:
    """What would be done with a table, in one sentence, with its targets where they are wanted."""
    key = f"key {', '.join(table.key)}" if table.key else "no key"
    rows = (
        "an unknown number of rows" if table.rows < 0 else f"about {table.rows:,} row{'' if table.rows == 1 else 's'}"
    )
    chunks = "" if table.chunks is None else f" in {table.chunks:,} chunk{'' if table.chunks == 1 else 's'}"
    work = {
        "begins": f"reads {rows}{chunks}",
        "goes on": f"goes on with its snapshot of {rows} after {table.chunks_done:,} chunks",
        "catches up": "its snapshot is complete, changes made meanwhile follow",
        "none": "no snapshot",
    }[table.snapshot]
    follow = f", then changes after {table.after}" if table.after else ", and no changes"
    if table.snapshot in ("none", "catches up") and table.after:
        follow = f", changes after {table.after}"
    places = "; ".join(
        f"{target.sink}: {target.place or 'left out by its routes'}"
        for target in table.targets
        if (target.place or target.left_out) and targets
    )
    columns = "1 column" if table.columns == 1 else f"{table.columns:,} columns"
    return f"{key}, {columns}; {work}{follow}{'; to ' + places if places else ''}."


def _tried(level: Level, subject: str, look: Callable[[], str], *, silent: bool = False) -> Iterator[Finding]:
    try:
        sentence = look()
    except Exception as error:
        yield from _failed(level, subject, error)
    else:
        if not silent:
            yield Finding(level, Verdict.OK, subject, sentence)


def _failed(level: Level, subject: str, error: Exception) -> Iterator[Finding]:
    """An error, and those that were met with it, as findings; what nobody expected is raised."""
    ours: HeadraceError | None = error if isinstance(error, HeadraceError) else None
    if isinstance(error, ModuleNotFoundError):
        ours = missing_package(error)
    if ours is None:
        raise error
    for one in (ours, *ours.others):
        yield Finding(level, Verdict.WRONG, subject, one.message, one.remedy)
