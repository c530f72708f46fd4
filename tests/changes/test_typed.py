"""What a column is found by, its name or its place, makes no difference to its value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.changes import Column, LogicalType
from headrace.changes.typed import (
    in_order,
    laid_over,
    literal,
    quote,
    said_in_order,
    texts_in_order,
    typed_struct,
    typed_value,
)

KINDS = {
    "id": ("int64", st.integers(-(2**63), 2**63 - 1).map(str)),
    "it's": ("string", st.text(max_size=8)),
    "Price": ("decimal(12,2)", st.decimals(-(10**9), 10**9, places=2).map(lambda value: f"{value:f}")),
    "price": ("decimal(38,9)", st.sampled_from(["0.000000001", "-12345678901234567890123456789.987654321"])),
    "a.b": ("timestamp(6)", st.sampled_from(["2024-02-29 23:59:59.123456", "0000-00-00 00:00:00", "2020-00-10"])),
    "day": ("date", st.sampled_from(["2024-02-29", "0000-00-00", "9999-12-31"])),
    "raw": ("bytes", st.sampled_from(["", "AAE=", "//8="])),
    "on": ("boolean", st.sampled_from(["true", "false"])),
    "real": ("float64", st.sampled_from(["0.1", "1e+22", "-0.0", "NaN"])),
}
COLUMNS = [Column(name, place, LogicalType.parse(kind)) for place, (name, (kind, _)) in enumerate(KINDS.items(), 1)]
NAMES = list(KINDS)
STRANGERS = {"beside": st.text(max_size=3), "ID": st.none(), "": st.just("x")}


@st.composite
def images(draw: st.DrawFn) -> dict[str, str | None] | None:
    """An image as a source or decoder may give it: whole, in part, with other columns, in any order; or none."""
    texts = {name: st.one_of(st.none(), text) for name, (_, text) in KINDS.items()} | STRANGERS
    names = draw(st.one_of(st.just(NAMES), st.permutations(NAMES), st.lists(st.sampled_from(list(texts)), unique=True)))
    return draw(st.one_of(st.none(), st.just({name: draw(texts[name]) for name in names})))


def by_name(image: str) -> str:
    """The same columns, looked up one by one: what `typed_struct` means."""
    fields = (f"{typed_value(f'{image}[{literal(c.name)}]', c)} as {quote(c.name)}" for c in COLUMNS)
    return f"if({image} is null, null, struct({', '.join(fields)}))"


def frame(spark: Any, rows: list[Any]) -> Any:
    return spark.createDataFrame(rows, "a map<string,string>, b map<string,string>").coalesce(1)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(images(), images()), min_size=60, max_size=60))
def test_columns_by_place_have_the_values_that_columns_by_name_have(spark: Any, rows: list[Any]) -> None:
    looked_up = frame(spark, rows).selectExpr(f"{by_name('a')} as row").collect()
    placed = frame(spark, rows).selectExpr(f"{texts_in_order('a', COLUMNS)} as texts")
    # As texts, because NaN is not itself.
    assert list(map(str, placed.selectExpr(f"{typed_struct('texts', COLUMNS)} as row").collect())) == list(
        map(str, looked_up)
    )


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(images(), images()), min_size=60, max_size=60))
def test_absent_null_and_a_value_stay_three_things_in_what_images_say_together(spark: Any, rows: list[Any]) -> None:
    found = (
        frame(spark, rows)
        .selectExpr(
            f"{laid_over('a', 'b')} as both",
            f"{in_order('a', NAMES)} as ordered",
            f"{said_in_order('map_keys(a)', NAMES)} as said",
        )
        .collect()
    )
    for (a, b), (both, ordered, said) in zip(rows, found, strict=True):
        assert both == (None if a is None or b is None else {**a, **b})
        assert (None if ordered is None else list(ordered.items())) == (
            None if a is None else [(name, a[name]) for name in NAMES if name in a]
        )
        assert (None if said is None else said[: len(NAMES)]) == (None if a is None else [name in a for name in NAMES])


@pytest.mark.parametrize("image", [{"id": "1"}, dict.fromkeys(NAMES) | {"id": "9" * 20}, {"id": "one"}])
def test_a_text_that_its_column_cannot_hold_stops_the_query_wherever_the_column_stands(
    spark: Any, image: dict[str, str | None]
) -> None:
    from pyspark.errors import PySparkException

    placed = frame(spark, [(image, None)]).selectExpr(f"{texts_in_order('a', COLUMNS)} as texts")
    row = placed.selectExpr(f"{typed_struct('texts', COLUMNS)} as row")
    if image["id"] == "1":
        assert row.collect()[0]["row"]["id"] == 1
        return
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        row.collect()
