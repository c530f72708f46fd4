"""The order of changes of one row that come from Kafka.

An offset compares inside its partition only. So a mirror keeps with each row's position which sequence it is of (topic,
partition, and the topic's id, which is another one after the topic was made again), and a change of another sequence
stops the batch: which of the two is later is not known. Unless the user says what orders them (`sequence_by`); then
that comes first, and only two changes that are equal in it have no order.

| position | of |
|---|---|
| `00000000000000000007/1/@1a2b3c4d` | a message: offset, place in the message, and the sequence |
| `00000000000000000007/1/m0d4a1185@1a2b3c4d` | one that says its transaction too (`headrace.apply.transactions`) |
| `s2024!00000000000000000007/1/@1a2b3c4d` | a message in a given order |
| `00000000000000000007/1/` | a message, as older releases wrote it: of an unknown sequence, so it compares with all |
| anything else | a captured change: the source's own order |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.apply.transactions import origin_of
from headrace.changes.refusal import refusal
from headrace.changes.typed import literal
from headrace.errors import OptionError, SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK, GIVEN, END = "@", "s", "!"
SUFFIX = 8
_DIGITS = 38
_OLD_FORM = f"^[0-9]{{20}}/[^{MARK}]*$"
_OLD = f"'{_OLD_FORM}'"
_DECODED = "message.topic is not null"
_ORDERED = "('r', 'c', 'u', 'd', 't')"


def sequenced(rows: DataFrame, sequence_by: str = "", epochs: Mapping[str, str] | None = None) -> DataFrame:
    """The rows, in which positions of messages say their sequence. Lazy; a second time changes nothing.

    Args:
        rows: change rows; captured ones stay as they are.
        sequence_by: Spark SQL over a change row for its place in an order that counts across partitions; a whole
            number, a date, a timestamp, or a text that sorts correctly. Digits alone are taken for a number.
        epochs: the id of each topic, where the broker tells it.

    Raises:
        OptionError: `sequence_by` is not such an expression.
    """
    known = "map()" if not epochs else f"map({', '.join(f'{literal(t)}, {literal(id)}' for t, id in epochs.items())})"
    epoch = f"coalesce(cast({known} as map<string,string>)[message.topic], '')"
    sequence = f"left(md5(concat_ws('/', message.topic, message.partition, {epoch})), {SUFFIX})"
    at = f"concat(position, {origin_of()}, '{MARK}', {sequence})"
    if sequence_by:
        at = f"if(op in {_ORDERED}, concat('{GIVEN}', {_order(rows, sequence_by)}, '{END}', {at}), {at})"
    plain = f"{_DECODED} and not contains(position, '{MARK}')"
    return rows.selectExpr(
        *(f"if({plain}, {at}, position) as position" if name == "position" else f"`{name}`" for name in rows.columns)
    )


def _order(rows: DataFrame, sequence_by: str) -> str:
    """Spark SQL for a text that compares as the order does."""
    from pyspark.errors import PySparkException

    try:
        kind = rows.selectExpr(f"({sequence_by}) as s").schema["s"].dataType.simpleString()
    except PySparkException as error:
        raise OptionError(
            f"Option 'sequence_by' can't be computed from a change row ({error.getCondition()}).",
            remedy="Write Spark SQL, such as cast(source['lsn'] as bigint).",
        ) from None
    table = "concat_ws('.', nullif(table.schema, ''), table.name)"
    sentence = f"concat('A change of table ', {table}, ' has no place in the order of sequence_by{{}}. Leave such rows "
    sentence += "out, or order by an expression that every change has.')"
    number = f"lpad(cast(cast(({sequence_by}) as decimal({_DIGITS},0)) as string), {_DIGITS}, '0')"
    if kind in ("tinyint", "smallint", "int", "bigint") or (kind.startswith("decimal") and kind.endswith(",0)")):
        as_text, fits = number, f"({sequence_by}) >= 0"
    elif kind == "date":
        as_text, fits = f"cast(({sequence_by}) as string)", "true"
    elif kind in ("timestamp", "timestamp_ntz"):
        micros = f"unix_micros(cast(({sequence_by}) as timestamp))"
        as_text, fits = f"lpad(cast({micros} as string), 20, '0')", f"{micros} >= 0"
    elif kind == "string":
        digits = f"({sequence_by}) rlike '^[0-9]{{1,{_DIGITS}}}$'"
        as_text = f"if({digits}, lpad(({sequence_by}), {_DIGITS}, '0'), ({sequence_by}))"
        # Characters that come before the mark of the end would change the order; ours would be taken for marks.
        fits = f"({sequence_by}) rlike '^[0-9A-Za-z:._/+-]+$'"
    else:
        raise OptionError(
            f"Option 'sequence_by' gives a value of type {kind}, which has no order.",
            remedy="Cast it to bigint, a timestamp or a text that sorts correctly.",
        )
    return (
        f"case when ({sequence_by}) is null then {refusal(sentence.format(': it is null'), SchemaError)} "
        f"when {fits} then {as_text} else {refusal(sentence.format(': its value is not comparable'), SchemaError)} end"
    )


def disordered(kept: str, new: str, *, strict: bool = False) -> str:
    """Spark SQL: do two positions say nothing about which change is the later one?

    Args:
        kept: SQL for the one that is there.
        new: SQL for the one that comes.
        strict: whether one in a given order and one without it have none; else the former is the later one.
    """
    both = f"startswith({kept}, '{GIVEN}') and startswith({new}, '{GIVEN}')"
    other = f"right({kept}, {SUFFIX}) <> right({new}, {SUFFIX})"
    equal = f"substring_index({kept}, '{END}', 1) = substring_index({new}, '{END}', 1)"
    return (
        f"coalesce(case when not contains({kept}, '{MARK}') and not contains({new}, '{MARK}') then false "
        f"when contains({kept}, '{MARK}') and contains({new}, '{MARK}') then "
        f"case when {both} then {other} and {equal} when startswith({kept}, '{GIVEN}') then true "
        # What had no order before has one now.
        f"when startswith({new}, '{GIVEN}') then {'true' if strict else 'false'} else {other} end "
        f"else not if(contains({kept}, '{MARK}'), {new}, {kept}) rlike {_OLD} end, false)"
    )


def is_disordered(kept: str | None, new: str) -> bool:
    """What `disordered` says of two positions in Spark."""
    if kept is None or (MARK not in kept and MARK not in new):
        return False
    if MARK in kept and MARK in new:
        other = kept[-SUFFIX:] != new[-SUFFIX:]
        if kept.startswith(GIVEN):
            return not new.startswith(GIVEN) or (other and kept.split(END)[0] == new.split(END)[0])
        return other and not new.startswith(GIVEN)
    return re.search(_OLD_FORM, new if MARK in kept else kept) is None


def has_disorder(kept: pa.Array, new: pa.Array) -> bool:
    """Whether `is_disordered` is true of any two positions of these columns, which are equally long.

    Two of one sequence, as nearly all are, are recognised column by column.
    """
    same = pc.equal(pc.utf8_slice_codeunits(kept, -SUFFIX), pc.utf8_slice_codeunits(new, -SUFFIX))
    for positions in (kept, new):
        of_message = pc.and_not(pc.match_substring(positions, MARK), pc.starts_with(positions, GIVEN))
        same = pc.and_kleene(same, of_message)
    rest = pc.invert(pc.fill_null(same, False))
    return any(map(is_disordered, kept.filter(rest).to_pylist(), new.filter(rest).to_pylist()))


def no_order(source: str, target: str = "") -> SchemaError:
    """Why a batch stops in which changes of one row come from several sequences."""
    where = f" for the {target}" if target else ""
    return SchemaError(
        f"Changes of one row of table {source} come from several Kafka partitions or topics, or from a topic that "
        f"was created again, so Headrace can't tell which one is the last{where}.",
        remedy="Set the sink's option 'sequence_by' to what orders them in the messages, such as "
        "cast(source['lsn'] as bigint), or send all changes of a row to one partition and read them into a new target.",
    )
