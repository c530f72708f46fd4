"""What a version of a Delta table's log says of the table itself."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.sinks.lake.data_files import arrow_type, numbered
from headrace.sinks.lake.partitions import PLAIN, PartitionField, Partitioning
from headrace.sinks.lake.storage import Folder, Location, Storage

VECTORS = "delta.enableDeletionVectors"
NO_VECTORS = "it has no deletion vectors ('readers')"
_KNOWN_FEATURES = frozenset(
    [
        "appendOnly",
        "invariants",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "typeWidening",
        "typeWidening-preview",
        "timestampNtz",
        "variantType",
        "variantType-preview",
        "domainMetadata",
        "clustering",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "inCommitTimestamp",
        "changeDataFeed",
        "generatedColumns",
        "identityColumns",
        "allowColumnDefaults",
    ]
)
"""Features of tables with which rows can be written without a command; of the last four it must be looked at whether
they are used."""
_NEEDS_COMMAND = ("delta.enableChangeDataFeed", "delta.enableRowTracking")
_COMPUTED = ("delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT")
_FEATURES = 7
"""The version of writers from which a table lists its features."""


@dataclass(frozen=True)
class TableFacts:
    """What a table is.

    Args:
        id: tells it from another one in the same place.
        location: where its folder is, as a URI.
        fields: its columns, as Spark writes a structure as JSON.
        partitions: the columns by which it has partitions.
        properties: its properties.
        features: those that its writers must know; None for a table from before features were listed.
        protocol: what readers and writers must know, as the log has it.
        storage: how Python reaches its folder; or why it doesn't, as the end of a sentence.
    """

    id: str
    location: str
    fields: tuple[Mapping[str, Any], ...]
    partitions: tuple[str, ...]
    properties: Mapping[str, str]
    features: frozenset[str] | None
    protocol: Mapping[str, Any]
    storage: Storage | str

    @classmethod
    def of(cls, metadata: str, protocol: str, location: str, storage: Storage | str) -> TableFacts:
        """Read the two lines of the log that say it.

        Args:
            metadata: the line `metaData`.
            protocol: the line `protocol`.
            location: the folder, as a URI.
            storage: how Python reaches it.
        """
        metadata_fields, needs = json.loads(metadata)["metaData"], json.loads(protocol)["protocol"]
        return cls(
            metadata_fields["id"],
            location,
            tuple(json.loads(metadata_fields["schemaString"])["fields"]),
            tuple(metadata_fields.get("partitionColumns") or ()),
            metadata_fields.get("configuration") or {},
            frozenset(needs.get("writerFeatures") or ()) if needs["minWriterVersion"] >= _FEATURES else None,
            needs,
            storage,
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns with their types as Spark's DDL has them; those of nested ones are of no use."""
        return {field["name"]: _DDL.get(str(field["type"]), str(field["type"])) for field in self.fields}

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows, with their numbers where it has column mapping."""
        numbers = self.numbers
        return pa.schema([numbered(name, arrow_type(kind), numbers.get(name)) for name, kind in self.columns.items()])

    @property
    def names(self) -> dict[str, str]:
        """The names that columns have in files and in the log, where these are not their own."""
        return {field["name"]: field["metadata"][_STORED_NAME] for field in self.fields} if self._is_mapped else {}

    @property
    def numbers(self) -> dict[str, int]:
        return {field["name"]: field["metadata"][_NUMBER] for field in self.fields} if self._is_mapped else {}

    @property
    def _is_mapped(self) -> bool:
        return self._mapping != "none"

    @property
    def _mapping(self) -> str:
        return self.properties.get("delta.columnMapping.mode", "none")

    @property
    def partitioning(self) -> Partitioning:
        return Partitioning(tuple(PartitionField(name, PLAIN) for name in self.partitions))

    @property
    def inside(self) -> list[str]:
        return [name for name in self.columns if name not in self.partitions]

    @property
    def is_nested(self) -> bool:
        """Whether a column has a type that `columns` does not say as Spark's DDL has it."""
        return any(not isinstance(field["type"], str) or _COLLATED in str(field["metadata"]) for field in self.fields)

    @property
    def padded(self) -> frozenset[str]:
        """The columns of texts that Spark fills up with blanks."""
        return frozenset(f["name"] for f in self.fields if str(f["metadata"].get(_SIZED, "")).startswith("char("))

    @property
    def all_properties(self) -> dict[str, str]:
        """The properties, and beside them what `show tblproperties` says of the protocol."""
        versions = {f"delta.{name}": str(self.protocol[name]) for name in _VERSIONS if name in self.protocol}
        features = {*(self.protocol.get("readerFeatures") or ()), *(self.protocol.get("writerFeatures") or ())}
        return {**self.properties, **versions, **{f"delta.feature.{name}": "supported" for name in sorted(features)}}

    @property
    def folder(self) -> Folder | None:
        if isinstance(self.storage, str):
            return None
        return Folder(Location.of_uri(self.location).path, self.storage)

    def is_on(self, name: str) -> bool:
        return self.properties.get(name, "").lower() == "true"

    @property
    def is_serializable(self) -> bool:
        """Whether no append of others lands after a commit that has read the table and before it."""
        return self.properties.get("delta.isolationLevel", _SERIALIZABLE) == _SERIALIZABLE

    @property
    def plain(self) -> bool:
        """Whether rows can come and go without more ado: nothing is to be computed from them, or to be kept of them."""
        if self.features is not None and not self.features <= _KNOWN_FEATURES:
            return False
        if any(self.is_on(name) for name in _NEEDS_COMMAND):
            return False
        return not any(name in json.dumps(self.fields) for name in _COMPUTED)

    @property
    def no_files(self) -> str:
        """Why files that pyarrow writes can't be the table's, as the end of a sentence; empty where they can."""
        properties, storage = self.properties, self.storage
        odd = next((f"{name} is {kind}" for name, kind in self.columns.items() if arrow_type(kind) is None), "")
        parts = self.partitioning.odd_column(self.columns)
        limits = any(name.startswith("delta.constraints.") for name in properties)
        limits = limits or any(not field["nullable"] or _LIMITS & {*field["metadata"]} for field in self.fields)
        reasons = {
            f"{storage}": isinstance(storage, str),
            # Its files may lack the names that the log says.
            "its column mapping goes by numbers": self._mapping not in ("none", "name"),
            "it has constraints": limits,
            f"its column {odd}": bool(odd),
            f"it has partitions by {parts}": bool(parts),
            "it has a change data feed, row tracking, computed columns or another feature that needs Delta's own "
            "commands": not self.plain,
            "it is an Iceberg table too": bool(properties.get("delta.universalFormat.enabledFormats")),
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")

    @property
    def no_index(self) -> str:
        """Why small batches can't go by an index of keys, as the end of a sentence; empty where they can."""
        properties = self.properties
        reasons = {
            NO_VECTORS: not self.is_on(VECTORS),
            self.no_files: bool(self.no_files),
            "it is append-only": self.is_on("delta.appendOnly"),
            "its log has checkpoints of version 2": "v2Checkpoint" in (self.features or ()),
            "its checkpoints lack statistics as JSON": properties.get(_AS_JSON, "true").lower() != "true",
            "others may append rows to it at the same time": not self.is_serializable,
            "the Python package pyroaring is not installed": importlib.util.find_spec("pyroaring") is None,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")


_STORED_NAME, _NUMBER = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_VERSIONS = ("minReaderVersion", "minWriterVersion")
_COLLATED = "COLLATION"
_SERIALIZABLE = "Serializable"
_SIZED = "__CHAR_VARCHAR_TYPE_STRING"
_LIMITS = {"delta.invariants", _SIZED}
"""What Spark checks of a column where it writes one."""
_AS_JSON = "delta.checkpoint.writeStatsAsJson"
_DDL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""Types that Spark's JSON has other names for."""
