"""How a message says which Avro schema it follows: the option `framing`.

A message part is cut into its head (what names the schema) and its body (the Avro datum) by Spark SQL, without turning
bytes into numbers for each message: heads are compared as bytes, and the driver reads the few that differ.

| framing | value bytes | schema named by |
|---|---|---|
| `confluent` | 00, id (4 bytes), datum | the id |
| `confluent-header` | datum | header `__value_schema_id`: 00 and id (4 bytes), or 01 and GUID (16) |
| `apicurio8` | 00, id (8 bytes), datum | the id (Apicurio's `globalId`) |
| `apicurio-header` | datum | header `apicurio.value.globalId` or `apicurio.value.contentId` (8 bytes) |
| `none` | datum | a header of the above, else the option `value_schema` or the only schema of `registry` |

Keys alike, with `key` for `value`; an id is big-endian. With `apicurio8` a part of less than nine bytes can only have
an id of four, which is what a key has that another converter wrote.

Source: Confluent's and Apicurio's documentation of their wire formats.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

from headrace.changes.letter_case import upper
from headrace.formats.messages import header
from headrace.formats.schema_registry import SchemaRef
from headrace.options import Option

Side = Literal["key", "value"]

FRAMINGS = ("confluent", "confluent-header", "apicurio8", "apicurio-header", "none")

FRAMING = Option(
    "framing",
    str,
    "How a message names its Avro schema: `confluent` (00 and a 4-byte id before the datum), `confluent-header` (in "
    "the headers `__key_schema_id` and `__value_schema_id`), `apicurio8` (00 and an 8-byte id), `apicurio-header` (in "
    "the headers `apicurio.value.globalId` or `contentId`), `none` (not at all).",
    default="confluent",
    choices=FRAMINGS,
)

_GIVEN = b"n"


@dataclass(frozen=True)
class Framing:
    """One framing.

    Args:
        name: one of `FRAMINGS`.
        given_key: whether the option `key_schema` names a schema for keys (framing `none` only).
        given_value: the same for values.
    """

    name: str
    given_key: bool = False
    given_value: bool = False

    def head(self, side: Side) -> str:
        """Spark SQL for the bytes that name the schema; null where the message part is null or names none."""
        if self.name in ("confluent", "apicurio8"):
            named = f"substr({side}, 1, 1) = X'00' and octet_length({side}) >= 5"
            return f"if({named}, substr({side}, 1, {self._size(side)}), null)"
        if self.name == "none":
            otherwise = f"X'{_GIVEN.hex()}'" if (self.given_key if side == "key" else self.given_value) else "null"
            found = f"coalesce({_confluent_header(side)}, {_apicurio_header(side)}, {otherwise})"
        else:
            found = _confluent_header(side) if self.name == "confluent-header" else _apicurio_header(side)
        return f"if({side} is null, null, {found})"

    def body(self, side: Side) -> str:
        """Spark SQL for the Avro datum."""
        return f"substr({side}, {self._size(side)} + 1)" if self.name in ("confluent", "apicurio8") else side

    def problem(self, side: Side) -> str:
        """Spark SQL for the sentence that says why a message part names no schema; null where it does, or is null."""
        if self.name in ("confluent", "apicurio8"):
            reason = (
                f"when substr({side}, 1, 1) <> X'00' "
                f"then 'The {side} does not begin with the byte 00 and a schema id.' "
                f"when octet_length({side}) < 5 then 'The {side} is shorter than a schema id.'"
            )
        elif self.name == "confluent-header":
            reason = f"when {_confluent_header(side)} is null then 'The {side} has no header __{side}_schema_id.'"
        elif self.name == "apicurio-header":
            # A JSON datum has another encoding header, and no Avro in it.
            encoding = f"cast({header(f'apicurio.{side}.encoding')} as string)"
            reason = (
                f"when {_apicurio_header(side)} is null then 'The {side} has no header apicurio.{side}.globalId or "
                f"contentId.' when {upper(encoding)} <> 'BINARY' then 'The {side} is not encoded as binary Avro.'"
            )
        elif side == "value":
            reason = f"when {self.head(side)} is null then 'The value names no schema, and none is given for it.'"
        else:
            return "cast(null as string)"
        return f"case when {side} is null then null {reason} end"

    @property
    def fixed_size(self) -> int:
        """How many bytes every head has that stands before its datum; 0 where it differs or stands elsewhere."""
        return 5 if self.name == "confluent" else 0

    def ref(self, head: bytes) -> SchemaRef | None:
        """The schema that a head names; null for the one given by an option, and for what is no id.

        Heads of headers carry a letter in front that says which header it was.
        """
        if self.name == "confluent":
            return SchemaRef("id", str(int.from_bytes(head[1:], "big")))
        if self.name == "apicurio8":
            return SchemaRef("globalId" if len(head) == 9 else "id", str(int.from_bytes(head[1:], "big")))
        kind, rest = head[:1], head[1:]
        if kind in (b"g", b"c") and len(rest) == 8:
            return SchemaRef("globalId" if kind == b"g" else "contentId", str(int.from_bytes(rest, "big")))
        if kind == b"s" and len(rest) == 5 and rest[0] == 0:
            return SchemaRef("id", str(int.from_bytes(rest[1:], "big")))
        if kind == b"s" and len(rest) == 17 and rest[0] == 1:
            return SchemaRef("guid", str(uuid.UUID(bytes=rest[1:])))
        return None

    @staticmethod
    def is_given(head: bytes) -> bool:
        """Whether the head stands for the schema that an option gives."""
        return head == _GIVEN

    def _size(self, side: Side) -> str:
        return f"if(octet_length({side}) < 9, 5, 9)" if self.name == "apicurio8" else "5"


def _confluent_header(side: Side) -> str:
    return f"concat(X'73', {header(f'__{side}_schema_id')})"


def _apicurio_header(side: Side) -> str:
    return (
        f"coalesce(concat(X'67', {header(f'apicurio.{side}.globalId')}), "
        f"concat(X'63', {header(f'apicurio.{side}.contentId')}))"
    )
