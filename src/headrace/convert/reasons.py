"""Why a property of Debezium, Kafka Connect or Debezium Server has no counterpart in a pipeline file.

Names are Connect's; `*` stands for any text. The first line that matches counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from headrace.convert.properties import Why

_USUAL: Mapping[str, tuple[str, ...]] = {
    "topic.naming.strategy": ("io.debezium.schema.SchemaTopicNamingStrategy",),
    "sourceinfo.struct.maker": ("io.debezium.connector.sqlserver.SqlServerSourceInfoStructMaker",),
    "event.processing.failure.handling.mode": ("fail",),
    "errors.tolerance": ("none",),
    "source.timestamp.mode": ("commit",),
    "signal.enabled.channels": ("source",),
    "producer.acks": ("all", "-1"),
    "producer.enable.idempotence": ("true",),
    "producer.partitioner.ignore.keys": ("false",),
    "read.only": ("false",),
    "converters": ("",),
    "notification.enabled.channels": ("",),
    "snapshot.tables.order.by.row.count": ("disabled",),
    "openlineage.integration.enabled": ("false",),
}
"""Values that ask for what is done anyway."""

_USUAL_OF: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "postgresql": {
        "sourceinfo.struct.maker": ("io.debezium.connector.postgresql.PostgresSourceInfoStructMaker",),
        "plugin.name": ("pgoutput",),
        "slot.drop.on.stop": ("false",),
        "flush.lsn.source": ("true",),
        "lsn.flush.mode": ("connector",),
        "offset.mismatch.strategy": ("trust_offset",),
        "publish.via.partition.root": ("true",),
        "replica.identity.autoset.values": ("",),
        "snapshot.isolation.mode": ("serializable", "repeatable_read"),
        "snapshot.locking.mode": ("shared",),
        "include.unknown.datatypes": ("true",),
        "hstore.handling.mode": ("json",),
        "money.fraction.digits": ("2",),
        "xmin.fetch.interval.ms": ("0",),
        "read.only": ("true", "false"),
    },
    "mysql": {
        "sourceinfo.struct.maker": (
            "io.debezium.connector.mysql.MySqlSourceInfoStructMaker",
            "io.debezium.connector.mariadb.MariaDbSourceInfoStructMaker",
        ),
        "connect.keep.alive": ("true",),
        "database.protocol": ("jdbc:mysql", "jdbc:mariadb"),
        "event.deserialization.failure.handling.mode": ("fail",),
        "inconsistent.schema.handling.mode": ("fail",),
        "gtid.source.filter.dml.events": ("true",),
        "snapshot.locking.mode": ("none", "minimal"),
        "table.ignore.builtin": ("true",),
        "use.nongraceful.disconnect": ("false",),
        "read.only": ("true", "false"),
    },
}
"""The same of one source."""

REFUSED: Mapping[str, str] = {
    "topic.naming.strategy": "Topics are named prefix.database.schema.table; route them by ByLogicalTableRouter.",
    "converters": "Headrace has no custom converters. Leave them out, and mind the values that they change.",
}
"""Properties without which messages would be others, with what to do; their usual values are harmless."""

DEFAULTS: Mapping[str, str] = {
    "slot.name": "debezium",
    "publication.name": "dbz_publication",
    "publication.autocreate.mode": "all_tables",
    "snapshot.isolation.mode": "repeatable_read",
    "event.converting.failure.handling.mode": "warn",
    "event.processing.failure.handling.mode": "fail",
    "errors.max.retries": "-1",
    "database.query.timeout.ms": "600000",
    "max.iteration.transactions": "500",
    "heartbeat.interval.ms": "0",
    "incremental.snapshot.chunk.size": "1024",
    "snapshot.mode": "initial",
    "snapshot.lock.timeout.ms": "10000",
    "skip.messages.without.change": "false",
    "provide.transaction.metadata": "false",
    "lob.enabled": "false",
    "tombstones.on.delete": "true",
    "skipped.operations": "t",
    "decimal.handling.mode": "precise",
    "time.precision.mode": "adaptive",
    "binary.handling.mode": "bytes",
    "interval.handling.mode": "numeric",
    "bigint.unsigned.handling.mode": "long",
    "enable.time.adjuster": "true",
    "include.schema.changes": "true",
    "topic.delimiter": ".",
    "replace.null.with.default": "true",
}
"""What Debezium 3 and Kafka Connect's converters do where a property is not given; a default that differs is listed."""

OF_SOME_SOURCES: Mapping[str, tuple[str, ...]] = {
    "interval.handling.mode": ("oracle", "postgresql"),
    "bigint.unsigned.handling.mode": ("mysql",),
    "enable.time.adjuster": ("mysql",),
}
"""Those of them that mean something with some sources only."""

_NOT_NEEDED: Mapping[str, str] = {
    "name": "it names the pipeline",
    "tasks.max": "Spark reads in as many tasks as it has cores",
    "key.converter.schemas.cache.*": "schemas are made once per batch",
    "value.converter.schemas.cache.*": "schemas are made once per batch",
    "header.converter*": "headers are written as the connector's converters do",
    "config.action.reload": "references are filled in at every start",
    "exactly.once.support": "a repeated message has the same bytes and carries its position",
    "transaction.boundary*": "a batch is a whole number of commits",
    "offsets.storage.topic": "progress lives in the checkpoint",
    "offset.storage*": "progress lives in the checkpoint",
    "offset.flush.*": "progress is committed with every batch",
    "offset.commit.policy": "progress is committed with every batch",
    "database.history*": "structures are read from the server's catalog",
    "schema.history.internal*": "structures are read from the server's catalog",
    "cdc.change.tables.schema": "each registration says where its change table is",
    "include.schema.comments": "comments of tables and columns are always read",
    "max.batch.size": "batches are whole commits, bounded by max_commits_per_trigger",
    "max.queue.size*": "there is no queue between reading and writing",
    "snapshot.fetch.size": "rows are fetched as Arrow batches",
    "streaming.fetch.size": "rows are fetched as Arrow batches",
    "snapshot.max.threads*": "chunks of a snapshot are read by all of Spark's cores",
    "data.query.mode": "change tables are read directly",
    "incremental.snapshot.watermarking.strategy": "ad-hoc snapshots write nothing to the source",
    "incremental.snapshot.allow.schema.changes": "ad-hoc snapshots follow the structure as it is",
    "incremental.snapshot.option.recompile": "chunks are read by statements of one plan each",
    "retriable.restart.connector.wait.ms": "errors_retry_delay_initial_ms says how long a retry waits",
    "errors.log.*": "each error is one sentence, and the whole trace with --debug",
    "errors.retry.timeout": "errors_max_retries bounds the retries",
    "topic.cache.size": "topics are made once per batch",
    "executor.shutdown.timeout.ms": "a stop waits for the batch that is being written",
    "producer.key.serializer": "messages are bytes already",
    "producer.value.serializer": "messages are bytes already",
    "producer.bootstrap.servers": "it is the sink's bootstrap.servers",
    "producer.acks": "acks is always all, which promises more",
    "producer.enable.idempotence": "idempotence is always on, which promises more",
    "database.*": "it is a setting of Debezium's JDBC driver, which is not used here",
    "driver.*": "it is a setting of Debezium's JDBC driver, which is not used here",
    "sink.kafka.wait.message.delivery.timeout.ms": "a batch waits for all of its messages",
    "quarkus.*": "it sets up Debezium Server's own program",
    "api.*": "it sets up Debezium Server's own program",
    "bootstrap.servers": "it is the worker's; the sink has its own",
}

_NOT_SUPPORTED: Mapping[str, str] = {
    "schema.*.list": "a list of schemas has no effect beside a list of tables",
    "poll.interval.ms": "it is no number of milliseconds",
    "snapshot.mode.configuration.based.*": "snapshot.mode has no configuration_based",
    "snapshot.mode.custom.*": "snapshot.mode has no custom",
    "snapshot.query.mode*": "rows are read by generated SELECTs, or those of snapshot.select.statement.overrides",
    "snapshot.delay.ms": "a snapshot begins at once",
    "streaming.delay.ms": "streaming begins at once",
    "snapshot.tables.order.by.row.count": "tables are read in the order of their names",
    "snapshot.database.errors.max.retries": "errors_max_retries bounds all retries",
    "event.processing.failure.handling.mode": "an event that can't be read means that the log is damaged",
    "signal.file": "file signals are sent by `headrace signal` into the folder signal_path",
    "signal.kafka.*": "signals come from the signal table and the folder signal_path, not from Kafka",
    "signal.poll.interval.ms": "signals are looked for at every trigger",
    "signal.enabled.channels": "only the channel source can be carried over, by signal.data.collection",
    "notification.*": "notifications go to the log and to a topic, in one form",
    "custom.metric.tags": "metrics have the pipeline's name only",
    "openlineage.*": "there is no lineage",
    "errors.tolerance": "an error always stops the run",
    "errors.deadletterqueue.*": "only pipelines that read from Kafka have dead letters",
    "event.order": "changes are in the order of their commits",
    "read.only": "nothing is written but signals of `headrace signal` and what heartbeat.action.query says",
    "source.struct.version": "the option shape says which generation of events is written",
    "producer.max.in.flight.requests.per.connection": "idempotence allows 5 at most",
    "producer.partitioner.*": "partitions are chosen by key, as Kafka's own clients do",
    "producer.transactional.id": "Spark writes to Kafka without transactions",
    "producer.interceptor.classes": "Spark's writer runs no interceptors",
    "key.converter.*": "the format has no such setting",
    "value.converter.*": "the format has no such setting",
    "internal.*": "it is an internal setting of Debezium",
}


_LEFT: Mapping[Why, Mapping[str, str]] = {"not needed": _NOT_NEEDED, "not supported": _NOT_SUPPORTED}
"""By pattern of a name, why it is left out."""

_LEFT_OF: Mapping[str, Mapping[Why, Mapping[str, str]]] = {
    "postgresql": {
        "not needed": {
            "status.update.interval.ms": "readers say every few seconds that they are alive",
            "schema.refresh.mode": "the log says which columns a change has",
            "slot.max.retries": "readers have slots of their own, so none waits for another",
            "slot.retry.delay.ms": "readers have slots of their own, so none waits for another",
            "snapshot.isolation.mode": "all rows are read as of the point where the slot begins",
            "snapshot.locking.mode*": "tables are locked (ACCESS SHARE) while they are read at one point",
        },
        "not supported": {
            "plugin.name": "changes are read by pgoutput, which every server has",
            "slot.drop.on.stop": "without the slot the changes until the next start would be lost",
            "slot.stream.params": "they are fixed, so that a range of the log read twice gives the same bytes",
            "flush.lsn.source": "the slot goes on when all sinks have a batch",
            "lsn.flush.mode": "the slot goes on when all sinks have a batch",
            "offset.mismatch.strategy": "the checkpoint decides, and a slot that is ahead of it stops the run",
            "publish.via.partition.root": "rows of a partition go by the name of the partitioned table",
            "replica.identity.autoset.values": "nothing is altered in the source; use ALTER TABLE ... REPLICA IDENTITY",
            "include.unknown.datatypes": "columns of all types are captured, as text where nothing else is known",
            "hstore.handling.mode": "hstore is written as JSON",
            "money.fraction.digits": "money is written with two digits",
            "xmin.fetch.interval.ms": "xmin is always null",
            "database.initial.statements": "no statements are run when a connection is made",
            "database.sslpassword": "the file of the key must have no password",
        },
    },
    "mysql": {
        "not needed": {
            "snapshot.locking.mode*": "tables are read at a consistent position without a global lock",
            "connect.keep.alive*": "lost sessions are made again, as often as errors_max_retries says",
            "binlog.buffer.size": "transactions of any size are read in flat memory",
            "use.nongraceful.disconnect": "readers close their sessions themselves",
            "min.row.count.to.stream.results": "rows of snapshots are always streamed",
            "database.jdbc.driver": "Debezium's JDBC driver is not used here",
            "database.protocol": "Debezium's JDBC driver is not used here",
            "database.connectionTimeZone": "every session is in UTC",
            "table.ignore.builtin": "the server's own databases are never captured",
        },
        "not supported": {
            "gtid.source.*": "all transactions of the log are read; another server's are found by their GTIDs",
            "event.deserialization.failure.handling.mode": "an event that can't be read always stops the run",
            "inconsistent.schema.handling.mode": "a row whose structure is unknown always stops the run",
            "database.initial.statements": "no statements are run when a connection is made",
            "database.ssl.keystore*": "certificates are files in PEM format, not keystores of Java",
            "database.ssl.truststore*": "certificates are files in PEM format, not keystores of Java",
        },
    },
}
"""The same of one source; it wins."""


def left_out() -> Iterator[tuple[str, str, Why, str]]:
    """All of it, for the reference: the source (empty for all), the pattern of the name, why, and the reason."""
    for why, table in _LEFT.items():
        yield from (("", pattern, why, text) for pattern, text in table.items())
    for source, tables in _LEFT_OF.items():
        for why, table in tables.items():
            yield from ((source, pattern, why, text) for pattern, text in table.items())


def usual(source: str, name: str) -> tuple[str, ...]:
    """Values of a property that ask for what the source does anyway."""
    return _USUAL_OF.get(source, {}).get(name, _USUAL.get(name, ()))


def reason(source: str, name: str) -> tuple[Why, str] | None:
    """Why a property is left out; None where that is not known."""
    for tables in (_LEFT_OF.get(source, {}), _LEFT):
        for why, table in tables.items():
            because = next((text for pattern, text in table.items() if fnmatchcase(name, pattern)), None)
            if because is not None:
                return why, because
    return None
