"""The files sink: encoded messages as JSON lines, one folder per batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace import faultpoints
from headrace.changes.dataset import Dataset
from headrace.changes.table import TableId
from headrace.changes.texts import base64_text
from headrace.changes.typed import literal
from headrace.errors import SinkError
from headrace.options import folder
from headrace.permissions import Permissions
from headrace.settings import Settings, option
from headrace.sinks.base import BatchId, LastBatch, Sink
from headrace.sinks.folder import Folder, absolute, folder_identity, folder_permissions, refuse_read_only
from headrace.sinks.java_failures import unknown_failure
from headrace.versions import require_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWNER_FILE = "_headrace_owner"
"""Whose the folder is; after that, on a line of its own, the version of its layout where that is not 1."""
OFFSETS_FILE = "_headrace_offsets"
_FORMAT_VERSION = "format-version: "
_NEWEST_FORMAT = 1
_LINE_DDL = (
    "topic string, key string, value string, key_base64 string, value_base64 string, "
    "headers array<struct<key:string,value:string,value_base64:string>>"
)


class FilesSettings(Settings):
    path: str = option("The folder for the batches, with one folder per batch. Created if it is missing.", kind=folder)


class FilesSink(Sink):
    """Writes messages to files that a person can read: a change log as JSON lines.

    Layout: `<path>/batch=<12 digits>/part-*.txt`. Each line is `{"topic", "key", "value", "headers", "position"}`
    with key and value as text; bytes that are no UTF-8 come base64-encoded as `key_base64` and `value_base64`
    instead, and so do all values of headers, as `value_base64`, where one of them is not UTF-8. Order: all lines of the
    sink, read folder by folder and file by file in name order, are in position order.

    Idempotence: a batch is written to a hidden folder and then renamed, so no half of it is ever seen, and a replay
    puts the same lines in the same place. Another batch under the same number stops, because each folder knows its
    offsets. On object stores a rename is a copy: read only folders that have `_SUCCESS`. A folder belongs to one
    pipeline and checkpoint. Runs in the driver, which starts a Spark job; executors write.
    """

    name: ClassVar[str] = "files"
    examples: ClassVar[Mapping[str, str]] = {"path": "./messages"}
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"
    takes: ClassVar[Literal["messages", "changes"]] = "messages"
    takes_lines: ClassVar[bool] = True
    is_one_place: ClassVar[bool] = True
    settings: FilesSettings
    orders_batch: ClassVar[bool] = True

    def check(self) -> None:
        """Whether the folder, or the nearest one above it, can be written. Object stores show it at the first write.

        Raises:
            SinkError: it can't. Nothing was created.
        """
        refuse_read_only(self.settings.path)

    def permissions(self, tables: Sequence[TableId], topics: Sequence[str]) -> Permissions:
        """Whether the folder takes a file; one is made and deleted again."""
        return folder_permissions(self.settings.path)

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        return frozenset([folder_identity(self.settings.path)])

    def dataset(self, table: TableId, topic: str | None = None) -> Dataset | None:
        return Dataset.of_folder(absolute(self.settings.path))

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write one batch's folder, in place of the same batch's older one.

        Raises:
            SinkError: the folder belongs to another pipeline or checkpoint, or can't be written.
            NewerRelease: a later release wrote the folder.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        base = absolute(self.settings.path)
        name = f"batch={batch.number:012}"
        draft = f"{base}/_writing-{name}"
        try:
            folder = Folder(rows.sparkSession, base)
            self._own(folder, batch)
            kept = folder.read(f"{name}/{OFFSETS_FILE}")
            LastBatch(batch.number, kept or batch.offsets).covers(batch, f"the folder {self.settings.path}/{name}")
            faultpoints.reach("sink.files.before_commit")
            # Spark's hidden prefix keeps readers away from the draft.
            lines(rows).write.mode("overwrite").text(draft)
            if batch.offsets:
                folder.create(f"_writing-{name}/{OFFSETS_FILE}", batch.offsets)
            folder.replace(f"_writing-{name}", name)
        except (PySparkException, Py4JError) as failure:
            raise unknown_failure(
                f"Can't write batch {batch.number} to the folder {self.settings.path}", failure
            ) from failure
        faultpoints.reach("sink.files.after_commit")

    def messages(self, spark: SparkSession, topics: str) -> DataFrame | None:
        base = absolute(self.settings.path)
        batches = [name for name in Folder(spark, base).names() if name.startswith("batch=")]
        if not batches:
            return None
        text = spark.read.option("lineSep", "\n").text([f"{base}/{name}" for name in batches])
        lines = text.selectExpr(f"from_json(value, '{_LINE_DDL}') as line").selectExpr("line.*")
        headers = "transform(headers, h -> named_struct('key', h.key, 'value', {}))"
        coded = "coalesce(unbase64(h.value_base64), cast(h.value as binary))"
        return lines.where(f"topic rlike {literal(f'^(?:{topics})$')}").selectExpr(
            "topic",
            "coalesce(unbase64(key_base64), cast(key as binary)) as key",
            "coalesce(unbase64(value_base64), cast(value as binary)) as value",
            f"{headers.format(coded)} as headers",
        )

    def _own(self, folder: Folder, batch: BatchId) -> None:
        content = folder.read(OWNER_FILE)
        if content is None:
            folder.create(OWNER_FILE, batch.owner)
            return
        owner, _, rest = content.partition("\n")
        if rest.startswith(_FORMAT_VERSION):
            require_readable(
                rest.removeprefix(_FORMAT_VERSION),
                _NEWEST_FORMAT,
                what=f"The folder {self.settings.path}",
                remedy="Write to it with that release, or choose another folder.",
            )
        if owner != batch.owner:
            raise SinkError(
                f"The folder {self.settings.path} belongs to the pipeline and checkpoint "
                f"'{owner}', not to '{batch.owner}'.",
                remedy="Choose another 'path': batch numbers of two checkpoints would overwrite each other.",
            )


def lines(rows: DataFrame) -> DataFrame:
    """One text column, one JSON object per message, in position order over the whole DataFrame.

    They are those of `wire.lines`; a column `line` holds them already.
    """
    from pyspark.sql import functions as sf

    ordered = rows.withColumn("_nth", sf.monotonically_increasing_id()).orderBy("position", "_nth")
    if "line" in rows.columns:
        return ordered.selectExpr("line as value")

    whole = (
        "coalesce(is_valid_utf8(cast(key as string)), true) and coalesce(is_valid_utf8(cast(value as string)), true)"
    )
    plain = "coalesce(forall(headers, h -> coalesce(is_valid_utf8(cast(h.value as string)), true)), true)"
    text_headers = "transform(headers, h -> named_struct('key', h.key, 'value', cast(h.value as string)))"
    byte_headers = f"transform(headers, h -> named_struct('key', h.key, 'value_base64', {base64_text('h.value')}))"
    texts = "cast(key as string) as key, cast(value as string) as value"
    coded = f"{base64_text('key')} as key_base64, {base64_text('value')} as value_base64"
    kept = "map('ignoreNullFields', 'false')"

    def line(parts: str, headers: str) -> str:
        return f"to_json(struct(topic, {parts}, {headers} as headers, position), {kept})"

    return ordered.selectExpr(
        f"case when {plain} then if({whole}, {line(texts, text_headers)}, {line(coded, text_headers)}) "
        f"else if({whole}, {line(texts, byte_headers)}, {line(coded, byte_headers)}) end as value"
    )
