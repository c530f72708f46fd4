"""Exact numbers as Connect writes them: the unscaled number in the fewest bytes of two's complement, most significant
first.

Spark's widest number has 38 digits. A wider one is made of limbs of 32 bits, from nine digits at a time; that is slower
by far, and only such values go that way.

Source: Connect's `Decimal` and Debezium's `VariableScaleDecimal`, as their documentation has them.
"""

from __future__ import annotations

_TWO_TO_64 = "18446744073709551616BD"
# Leading bytes that two's complement does not need: 00 before a clear bit, FF before a set one.
_SIGN_BYTES = "^(00(?=[0-7])|FF(?=[89A-F]))+"
_DIGITS_AT_ONCE = 9
_LIMB = 4294967296
NUMBER = r"^-?[0-9]+(\\.[0-9]+)?$"
"""Plain digits, as a pattern for Spark SQL."""


def long_bytes(number: str) -> str:
    """Spark SQL for the bytes of a bigint (an SQL expression that is cheap to repeat)."""
    # The hexadecimal digits that it needs, the sign's bit among them.
    ends = [(n, 2 ** (8 * n - 1)) for n in range(1, 8)]
    tests = [f"when {number} >= -{end}L and {number} < {end}L then {2 * n}" for n, end in ends]
    width = f"case {' '.join(tests)} else 16 end"
    return f"unhex(if({number} >= 0, lpad(hex({number}), {width}, '0'), substr(hex({number}), -({width}))))"


def digit_bytes(digits: str, precision: int | None) -> str:
    """Spark SQL for the bytes of a whole number in plain digits.

    Args:
        digits: the text; one that is no whole number gives null.
        precision: how many digits it has at most; null where that is not known.
    """
    if precision is not None and precision <= 18:
        return _short(digits)
    # A lambda's variable, so that the text is written, and made, once.
    if precision is not None and precision <= 38:
        return _let(digits, f"if(length(d) <= 18, {_short('d')}, {_wide('d')})")
    return _let(
        digits,
        f"case when length(d) <= 18 then {_short('d')} when length(d) <= 38 then {_wide('d')} "
        f"when d rlike '^-?[0-9]+$' then {_any('d')} end",
    )


def _let(value: str, body: str) -> str:
    return f"transform(array({value}), d -> {body})[0]"


def _short(digits: str) -> str:
    return f"unhex(regexp_replace(lpad(hex(try_cast({digits} as bigint)), 16, '0'), '{_SIGN_BYTES}', ''))"


def _wide(digits: str) -> str:
    """Two halves of 64 bits: the low one unsigned, the high one with the sign."""
    whole = f"try_cast({digits} as decimal(38,0))"
    low = f"lpad(conv(cast(pmod({whole}, {_TWO_TO_64}) as string), 10, 16), 16, '0')"
    # The quotient is rounded towards zero; two's complement wants it rounded down.
    high = f"lpad(hex({whole} div {_TWO_TO_64} - if({whole} % {_TWO_TO_64} < 0, 1, 0)), 16, '0')"
    return f"unhex(regexp_replace(concat({high}, {low}), '{_SIGN_BYTES}', ''))"


def _any(digits: str) -> str:
    """Limbs of 32 bits, the least significant first, modulo a power of two: so negative numbers come out by themselves.

    Each nine digits are added to 1,000,000,000 times what there is.
    """
    plain = f"replace({digits}, '-', '')"
    sign = f"if(startswith({digits}, '-'), -1L, 1L)"
    chunks = f"((length({plain}) + {_DIGITS_AT_ONCE - 1}) div {_DIGITS_AT_ONCE})"
    padded = f"lpad({plain}, cast({chunks} * {_DIGITS_AT_ONCE} as int), '0')"
    parts = (
        f"transform(sequence(0, cast({chunks} as int) - 1), i -> "
        f"cast(substr({padded}, i * {_DIGITS_AT_ONCE} + 1, {_DIGITS_AT_ONCE}) as bigint) * {sign})"
    )
    # 32 bits hold more than nine digits, so one limb for each nine digits and one for the sign are enough.
    start = f"array_repeat(0L, cast({chunks} as int) + 1)"
    product = "l * 1000000000L + s.carry"
    step = (
        f"named_struct('carry', shiftright({product}, 32), 'limbs', concat(s.limbs, array(pmod({product}, {_LIMB}L))))"
    )
    zero = "named_struct('carry', {}, 'limbs', cast(array() as array<bigint>))"
    limbs = f"aggregate({parts}, {start}, (a, c) -> aggregate(a, {zero.format('c')}, (s, l) -> {step}).limbs)"
    text = f"array_join(transform(reverse({limbs}), l -> lpad(hex(l), 8, '0')), '')"
    return f"unhex(regexp_replace({text}, '{_SIGN_BYTES}', ''))"


def twos_complement(text: str, scale: int) -> bytes:
    """The bytes of a decimal at a scale, in Python; for defaults."""
    # Digits are moved as text: arithmetic on Decimal would round to the context's 28 digits.
    whole, _, fraction = text.partition(".")
    number = int(whole + fraction.ljust(scale, "0"))
    magnitude = number if number >= 0 else ~number
    return number.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)
