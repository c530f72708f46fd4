"""Values of DTS images as canonical text, by Spark SQL: one expression for all branches of the union.

The expressions stand in lambdas, which Spark interprets: nothing is compiled per column, so that wide tables and many
tables cost no more per value.
"""

from __future__ import annotations

from headrace.changes.letter_case import lower, upper
from headrace.changes.texts import float_text, moment_text
from headrace.formats import dts_charsets
from headrace.formats.dts_schema import (
    BINARY_GEOMETRY,
    BINARY_OBJECT,
    CHARACTER,
    DATE_TIME,
    DECIMAL,
    EMPTY,
    FLOAT,
    INTEGER,
    TEXT_GEOMETRY,
    TEXT_OBJECT,
    TIMESTAMP,
    ZONED,
)
from headrace.formats.dts_types import BOOLEAN_OID, FLOAT_NUMBERS, TEXTUAL_OBJECTS, TEXTUAL_OIDS

READ_VALUE = "struct<text:string,form:string>"
"""A value as it was read: its canonical text and its form. NULL has neither; an absent one has the form `ABSENT`; one
that can't be read has a form and no text."""
ABSENT = "N"

# Seconds whose days have a date in Spark.
MOST_SECONDS = 9_000_000_000_000
_INTEGER = "^[+-]?[0-9]+$"
DECIMAL_TEXT = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_SPECIAL = ("NaN", "Infinity", "-Infinity", "~")
_DAY, _TEXT, _BLANK = "'D'", "'t'", "' '"
_ZONE = "^([+-][0-9]{1,2}(:?[0-9]{2}){0,2}|[A-Za-z][A-Za-z0-9_+/:-]*)$"


def let(name: str, value: str, body: str) -> str:
    """Spark SQL for `body`, in which `name` stands for a value that is computed once."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def read_value(v: str, number: str, kind: str, micro: str) -> str:
    """Spark SQL for `READ_VALUE` of one value.

    Args:
        v: SQL for the value; a name, because it is repeated.
        number: SQL for its field's `dataTypeNumber`.
        kind: SQL for whose numbers these are (`dts_types.KIND`).
        micro: SQL: whether the fraction of a DateTime is microseconds.
    """

    def pair(text: str, form: str) -> str:
        return f"named_struct('text', cast({text} as string), 'form', cast({form} as string))"

    integer = f"{v}.{INTEGER}.value"
    # Most integers are short: a cast is cheaper than a pattern, but takes blanks.
    plain = f"(length({integer}) < 19 and cast(try_cast({integer} as bigint) as string) = {integer})"
    decimal = f"{v}.{DECIMAL}.value"
    special = ", ".join(f"'{word}'" for word in _SPECIAL)
    character = f"{v}.{CHARACTER}"
    as_bytes = f"({dts_charsets.is_bytes(f'{character}.charset')} or not "
    as_bytes += f"{dts_charsets.is_known(f'{character}.charset')})"
    textual = ", ".join(f"'{name}'" for name in TEXTUAL_OBJECTS)
    oids = ", ".join(map(str, TEXTUAL_OIDS))
    binary = f"{v}.{BINARY_OBJECT}"
    is_text = f"({upper(f'{binary}.type')} in ({textual}) or ({kind} = 'p' and {number} in ({oids})))"
    utf8 = f"try_validate_utf8(cast({binary}.value as string))"
    text_object = f"{v}.{TEXT_OBJECT}"

    def boolean(text: str, type: str) -> str:
        word = f"case when {lower(text)} in ('t', 'true', '1') then 'true' "
        word += f"when {lower(text)} in ('f', 'false', '0') then 'false' else {text} end"
        of_boolean = f"({upper(type)} in ('BOOL', 'BOOLEAN') or ({kind} = 'p' and {number} = {BOOLEAN_OID}))"
        is_word = f"{lower(text)} in ('t', 'true', '1', 'f', 'false', '0')"
        return pair(f"if({of_boolean}, {word}, {text})", f"if({of_boolean} and {is_word}, 'o', 't')")

    date_time = date_time_text(f"{v}.{DATE_TIME}", micro)
    zone = f"trim({v}.{ZONED}.timezone)"
    zoned = let(
        "w",
        date_time_text(f"{v}.{ZONED}.value", micro),
        # A time without a day, or of a zone that Java does not know, is a text.
        pair(
            f"if({zone} rlike '{_ZONE}', concat(w.text, {zone}), null)",
            f"if(w.form in ('l', 'L') and try_cast(concat(w.text, {zone}) as timestamp) is not null, 'z', 't')",
        ),
    )
    return (
        f"case when {v} is null or {v}.{EMPTY} = 'NULL' then {pair('null', 'null')} "
        f"when {v}.{INTEGER} is not null then "
        f"{pair(f'if({plain} or {integer} rlike {_q(_INTEGER)}, {integer}, null)', _q('n'))} "
        f"when {character} is not null then if({dts_charsets.is_utf8(f'{character}.charset')}, "
        f"{pair(f'try_validate_utf8(cast({character}.value as string))', _q('t'))}, if({as_bytes}, "
        f"{pair(base64_text(f'{character}.value'), _q('b'))}, "
        f"{pair(dts_charsets.text(f'{character}.charset', f'{character}.value'), _q('t'))})) "
        f"when {decimal} is not null then "
        f"{pair(f'if({decimal} rlike {_q(DECIMAL_TEXT)} or {decimal} in ({special}), {decimal}, null)', _q('d'))} "
        f"when {v}.{DATE_TIME} is not null then {date_time} "
        f"when {v}.{TIMESTAMP} is not null then {pair(instant_text(f'{v}.{TIMESTAMP}'), _q('i'))} "
        f"when {v}.{FLOAT} is not null then {pair(_number(f'{v}.{FLOAT}.value', number, kind), _q('f'))} "
        f"when {text_object} is not null then "
        f"{boolean(f'try_validate_utf8({text_object}.value)', f'{text_object}.type')} "
        f"when {binary} is not null then if({is_text}, {boolean(utf8, f'{binary}.type')}, "
        f"{pair(base64_text(f'{binary}.value'), _q('b'))}) "
        f"when {v}.{ZONED} is not null then {zoned} "
        f"when {v}.{TEXT_GEOMETRY} is not null then "
        f"{pair(f'try_validate_utf8({v}.{TEXT_GEOMETRY}.value)', _q('t'))} "
        f"when {v}.{EMPTY} = 'NONE' then {pair('null', _q(ABSENT))} "
        f"else {pair(base64_text(f'{v}.{BINARY_GEOMETRY}.value'), _q('b'))} end"
    )


def _q(text: str) -> str:
    return f"'{text}'"


def base64_text(value: str) -> str:
    """Spark SQL for bytes as canonical text."""
    return f"replace(base64({value}), '\\r\\n', '')"


def _number(value: str, number: str, kind: str) -> str:
    """A binary number in its fewest digits: those of a float where the column is one and the value too."""
    is_float = " or ".join(f"({kind} = '{k}' and {number} = {n})" for k, n in FLOAT_NUMBERS.items())
    single = f"cast({value} as float)"
    same = f"(cast({single} as double) = {value} or isnan({value}))"
    return f"if(({is_float}) and {same}, {float_text(single)}, {float_text(value)})"


def instant_micros(timestamp: str) -> str:
    """Spark SQL for the microseconds since the epoch of a Timestamp; null where it is out of range.

    What the schema calls milliseconds is microseconds.
    """
    second, micro = f"{timestamp}.timestamp", f"{timestamp}.millis"
    return (
        f"if({second} between -{MOST_SECONDS}L and {MOST_SECONDS}L and {micro} between 0 and 999999, "
        f"{second} * 1000000L + {micro}, null)"
    )


def instant_text(timestamp: str) -> str:
    """Spark SQL for a Timestamp as canonical text."""
    return let("s", instant_micros(timestamp), f"concat(replace({moment_text('s', 'timestamp', 6, 6)}, ' ', 'T'), 'Z')")


def date_time_text(d: str, micro: str) -> str:
    """Spark SQL for a struct of a DateTime's `text` and `form`; the text is null where no part is given.

    A zero date, and any other that no calendar has, is of form `t`.
    """
    two = "if({0} < 10, concat('0', {0}), cast({0} as string))"
    year = (
        f"case when {d}.year is null then '0000' when {d}.year > 9999 then concat('+', {d}.year) "
        f"when {d}.year < 0 then concat('-', lpad(abs(cast({d}.year as bigint)), 4, '0')) "
        f"else lpad({d}.year, 4, '0') end"
    )
    month, day = f"coalesce({d}.month, 0)", f"coalesce({d}.day, 0)"
    date = f"concat({year}, '-', {two.format(month)}, '-', {two.format(day)})"
    size = {part: f"abs(cast(coalesce({d}.{part}, 0) as bigint))" for part in ("hour", "minute", "second", "millis")}
    negative = f"least({', '.join(f'coalesce({d}.{part}, 0)' for part in size)}) < 0"
    digits = f"if({micro} and {size['millis']} < 1000000, 6, 9)"
    fraction = f"if(coalesce({d}.millis, 0) = 0, '', concat('.', lpad({size['millis']}, {digits}, '0')))"
    clock = (
        f"concat(if({negative}, '-', ''), {two.format(size['hour'])}, ':', {two.format(size['minute'])}, ':', "
        f"{two.format(size['second'])}, {fraction})"
    )
    has_date = f"({d}.month is not null or {d}.day is not null)"
    has_time = f"({d}.hour is not null or {d}.minute is not null or {d}.second is not null)"
    is_date = is_day(d)
    is_clock = (
        f"{d}.hour between 0 and 23 and coalesce({d}.minute, 0) between 0 and 59 "
        f"and coalesce({d}.second, 0) between 0 and 59 and not {negative}"
    )
    fine = f"if(coalesce({d}.millis, 0) <> 0 and {digits} = 9, 'L', 'l')"

    def made(text: str, form: str) -> str:
        return f"named_struct('text', cast({text} as string), 'form', cast({form} as string))"

    return (
        f"case when {d}.millis < -999999999 or {d}.millis > 999999999 then {made('null', _q('t'))} "
        f"when {d}.year is not null and not {has_date} and not {has_time} then "
        f"{made(f'{d}.year', _q('y'))} "
        f"when {d}.year is null and not {has_date} then if({has_time}, {made(clock, _q('T'))}, "
        f"{made('null', _q('t'))}) "
        f"when not {has_time} then {made(date, f'if({is_date}, {_DAY}, {_TEXT})')} "
        f"else {made(f'concat({date}, {_BLANK}, {clock})', f'if({is_date} and {is_clock}, {fine}, {_TEXT})')} "
        "end"
    )


def is_day(d: str) -> str:
    """Spark SQL: whether a DateTime's year, month and day are a day of the calendar."""
    longest = (
        f"case when {d}.month in (4, 6, 9, 11) then 30 when {d}.month <> 2 then 31 "
        f"when {d}.year % 4 = 0 and ({d}.year % 100 <> 0 or {d}.year % 400 = 0) then 29 else 28 end"
    )
    return (
        f"coalesce({d}.year between 1 and 9999 and {d}.month between 1 and 12 and {d}.day between 1 and {longest}, "
        "false)"
    )
