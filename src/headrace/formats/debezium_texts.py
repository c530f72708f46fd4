"""Counts of time and packed decimals as canonical text, as Spark SQL.

Every function takes SQL and gives SQL. None raises, whatever the value: what can't be read gives null. Exact numbers
never pass through a double.
"""

from __future__ import annotations

MOST_DIGITS = 20_000
"""The longest decimal that is read, in digits, and the largest scale."""

_DAY = 86_400
# Limbs of a wide number: below 10**14, so that one times 2**16 is a bigint.
_LIMB = "100000000000000L"


def date_text(days: str) -> str:
    """A count of days since 1970 (SQL of a whole number): years beyond 9999 with as many digits as they need."""
    return f"ltrim('+', cast(date_from_unix_date(try_cast({days} as int)) as string))"


def time_text(count: str, unit: str, digits: str) -> str:
    """A count of 10**-unit seconds as `[-]HH:MM:SS[.f]`; hours as many as there are.

    Args:
        count: SQL of a bigint; written several times.
        unit: SQL for 3, 6 or 9.
        digits: SQL for the fraction digits; with -1 those of the unit, and none for a fraction of zero.
    """
    per = _per_second(unit)
    # Divided before the sign is taken off: the least bigint has no counterpart.
    parts = f"named_struct('s', abs({count} div {per}), 'f', abs({count} % {per}))"
    return f"concat(if({count} < 0, '-', ''), {_clock(parts, unit, digits, drop='true')})"


def timestamp_text(count: str, unit: str, digits: str) -> str:
    """A count of 10**-unit seconds since 1970 as `YYYY-MM-DD HH:MM:SS[.f]`, with -1 always the unit's digits."""
    day, parts = _day_and_rest(count, _per_second(unit))
    return f"concat({date_text(day)}, ' ', {_clock(parts, unit, digits, drop='false')})"


def _day_and_rest(count: str, per: str) -> tuple[str, str]:
    day_length = f"({per} * {_DAY}L)"
    day = f"({count} div {day_length} - if({count} % {day_length} < 0, 1L, 0L))"
    return day, f"named_struct('s', pmod({count}, {day_length}) div {per}, 'f', pmod({count}, {per}))"


def _per_second(unit: str) -> str:
    return (
        f"{10 ** int(unit)}L"
        if unit.isdigit()
        else f"case {unit} when 3 then 1000L when 6 then 1000000L else 1000000000L end"
    )


def _clock(parts: str, unit: str, digits: str, *, drop: str) -> str:
    """Hours, minutes, seconds and the fraction of a struct of seconds (`s`) and the rest (`f`)."""
    written = f"lpad(t.f, {unit}, '0')"
    cut = f"concat('.', rpad(substr({written}, 1, {digits}), {digits}, '0'))"
    fraction = (
        f"case when {digits} = 0 or {digits} < 0 and {drop} and t.f = 0 then '' "
        f"when {digits} < 0 then concat('.', {written}) else {cut} end"
    )
    text = (
        "concat(if(t.s < 36000, '0', ''), t.s div 3600, ':', lpad(t.s div 60 % 60, 2, '0'), ':', "
        f"lpad(t.s % 60, 2, '0'), {fraction})"
    )
    return let(parts, "t", text)


def decimal_text(unscaled: str, scale: str) -> str:
    """Big-endian two's complement bytes (SQL of a binary) and a scale as plain digits; any number of bytes."""
    number = let(f"hex({unscaled})", "h", _integer("h"))
    sane = f"{scale} between -{MOST_DIGITS} and {MOST_DIGITS}"
    return f"if({sane}, {let(number, 'n', point_text('n', scale))}, null)"


def point_text(number: str, scale: str) -> str:
    """A whole number's digits (SQL of a text) with the point set `scale` places from the right."""
    sign = f"if(startswith({number}, '-'), '-', '')"
    digits = f"ltrim('-', {number})"
    padded = f"lpad({digits}, greatest(length({digits}), {scale} + 1), '0')"
    return (
        f"case when {scale} = 0 or {number} = '0' and {scale} < 0 then {number} "
        f"when {scale} < 0 then concat({number}, repeat('0', -{scale})) "
        f"else concat({sign}, substr({padded}, 1, length({padded}) - {scale}), '.', substr({padded}, -{scale})) end"
    )


def let(value: str, name: str, body: str) -> str:
    """SQL in which `body` may say `name` for `value`, which is computed once."""
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


def _integer(digits: str) -> str:
    """The whole number that hexadecimal digits in two's complement mean; null for none."""
    sign = f"if({digits} >= '8', 'F', '0')"
    short = f"conv(lpad({digits}, 16, {sign}), 16, -10)"
    wide = f"lpad({digits}, 32, {sign})"
    high = f"cast(conv(substr({wide}, 1, 16), 16, -10) as decimal(19,0))"
    low = f"cast(conv(substr({wide}, 17), 16, 10) as decimal(20,0))"
    # Both halves get the sign, so that no step of the sum is larger than the sum.
    carry = f"if({digits} >= '8', 1, 0)"
    total = f"({high} + {carry}) * 18446744073709551616BD + ({low} - {carry} * 18446744073709551616BD)"
    return (
        f"case when coalesce({digits}, '') = '' then null when length({digits}) <= 16 then {short} "
        f"when length({digits}) <= 30 then cast({total} as string) "
        f"when length({digits}) <= {MOST_DIGITS * 5 // 6} then {_wide_integer(digits)} end"
    )


def _wide_integer(digits: str) -> str:
    """The same for numbers that no Spark type holds: sixteen bits after sixteen bits are added to limbs of 14 digits.

    A limb may stand a little above its bound until the end, so that no step has to carry through all of them.
    """
    negative = f"({digits} >= '8')"
    inverted = f"if({negative}, translate({digits}, '0123456789ABCDEF', 'FEDCBA9876543210'), {digits})"
    padded = f"lpad({inverted}, (length({digits}) + 3) div 4 * 4, '0')"
    chunks = (
        f"transform(sequence(0, (length({digits}) + 3) div 4 - 1), "
        "i -> cast(conv(substr(p, i * 4 + 1, 4), 16, 10) as bigint))"
    )
    room = "if(element_at(a, -1) >= 1525878900L, concat(a, array(0L)), a)"
    step = f"transform({room}, (l, i) -> (l * 65536L) % {_LIMB} + if(i = 0, c, get(a, i - 1) * 65536L div {_LIMB}))"
    limbs = let(padded, "p", f"aggregate({chunks}, array(0L), (a, c) -> {step})")
    # The magnitude of a negative number is its inverse and one.
    start = f"named_struct('carry', if({negative}, 1L, 0L), 'text', '')"
    joined = (
        f"named_struct('carry', (l + s.carry) div {_LIMB}, "
        f"'text', concat(lpad((l + s.carry) % {_LIMB}, 14, '0'), s.text))"
    )
    whole = "ltrim('0', concat(s.carry, s.text))"
    text = f"aggregate({limbs}, {start}, (s, l) -> {joined}, s -> if({whole} = '', '0', {whole}))"
    return f"concat(if({negative}, '-', ''), {text})"
