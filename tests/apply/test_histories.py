"""Any history of a table, cut into any batches, any of which is written twice, leaves what the plain model has."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.apply import carried, fold, fold_keyless, profile
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, Model, table
from headrace.testing.histories import STEPS, Step, cut, history

COLUMNS = {"id": "string", "a": "string", "b": "string"}
T = table(**COLUMNS)
K = table(key=(), **COLUMNS)


class Mirror:
    """What a sink with MERGE makes of folded rows, in Python."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.bag: Counter[Any] = Counter()

    def write(self, spark: Any, batch: Batch) -> None:
        changes = batch.rows(spark)
        (found,) = profile(changes)
        if found.truncate_at is not None:
            late = found.truncate_at
            self.rows = {key: row for key, row in self.rows.items() if row["position"] > late}
            self.bag.clear()
        if not found.schema.key:
            for row in fold_keyless(changes, found).collect():
                self.bag[tuple(row["row"])] += row["occurrences"] if row["op"] == "insert" else -row["occurrences"]
            return
        with carried(changes, found, lambda keys: self.standing(spark)) as whole:
            folded = fold(whole, found).collect()
        for row in folded:
            values = row["row"].asDict()
            old = self.rows.get(values["id"])
            if old is not None and old["position"] >= row["position"]:
                continue
            if row["op"] == "delete":
                self.rows.pop(values["id"], None)
                continue
            assert row["whole"] or (old is not None and row["present"] is not None)
            kept = values if row["present"] is None else {name: values[name] for name in row["present"]}
            self.rows[values["id"]] = {**(old or values), **kept, "position": row["position"]}

    def standing(self, spark: Any) -> Any:
        """The rows as `carried` takes them."""
        lines = [(row["id"], row["a"], row["b"], row["position"]) for row in self.rows.values()]
        rows = local_rows(spark, lines, "id string, a string, b string, since string")
        return rows.selectExpr("struct(id, a, b) as row", "since", "cast(null as string) as until")

    def content(self, keyed: bool) -> list[Any]:
        found = [tuple(row[name] for name in COLUMNS) for row in self.rows.values()] if keyed else self.bag.elements()
        return sorted(found, key=repr)


@settings(
    max_examples=examples(8),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, sizes=st.lists(st.integers(1, 8), max_size=2), partial=st.booleans(), again=st.booleans())
def test_a_table_with_a_key(spark: Any, steps: list[Step], sizes: list[int], partial: bool, again: bool) -> None:
    mirror, model = Mirror(), Model(T)
    for batch in cut(history(steps, T, partial, bare_moves=True), T, sizes):
        mirror.write(spark, batch)
        if again:
            mirror.write(spark, batch)
        model.apply(batch.lines)
        assert mirror.content(True) == model.content()


@settings(
    max_examples=examples(5),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, sizes=st.lists(st.integers(1, 8), max_size=2))
def test_a_table_without_a_key(spark: Any, steps: list[Step], sizes: list[int]) -> None:
    mirror, model = Mirror(), Model(K)
    # Keys are not told, so that equal rows come from different ones.
    changes = history(steps, K, False)
    for change in changes:
        for line in change.lines:
            for image in ("before", "after"):
                if line.get(image):
                    line[image] = {**line[image], "id": None}
    for batch in cut(changes, K, sizes):
        mirror.write(spark, batch)
        model.apply(batch.lines)
        assert mirror.content(False) == model.content()
