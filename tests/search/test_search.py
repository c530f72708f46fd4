"""Rule: whatever is drawn, a pipeline's sinks hold what the source held, or the run stopped and said why.

A database, options, sinks and a course of commits, batches, crashes and restarts come from a seed (`drawn`); the source
is driven as Spark drives it (`driver`), and a plain model says what the sinks must hold (`model`). One seed by itself:
`HEADRACE_SEED=17 pytest tests/search -k seed`. What fails is made smaller and spelled as Python, for `kept`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.search import through_spark
from tests.search.drawn import Pipeline, draw, smaller, written
from tests.search.driver import run
from tests.search.kept import KEPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = os.environ.get("HEADRACE_SEED")
FEW = [0, 1, *(pytest.param(seed, marks=pytest.mark.system) for seed in range(2, 10))]
MANY = int(os.environ.get("HEADRACE_PIPELINES", "5000"))
MOST_STOPPED = 0.1
"""A search whose runs stop at once finds nothing."""


def went(pipeline: Pipeline) -> tuple[str, str]:
    """How it went: `level`, `stopped` with the kind of error, or `failed`; and why."""
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "server").mkdir()
        outcome = run(pipeline, folder)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder)
    if outcome.stopped is None:
        return "level", ""
    return f"stopped: {type(outcome.stopped).__name__}", outcome.stopped.message


def require(pipeline: Pipeline, name: str) -> str:
    how, why = went(pipeline)
    if how == "failed":
        kind = why.partition(":")[0]

        def fails_alike(other: Pipeline) -> bool:
            found, reason = went(other)
            return found == "failed" and reason.startswith(kind)

        least = smaller(pipeline, fails_alike)
        pytest.fail(f"{name}: {why}\n\nsmaller: {written(least)}\n\n{went(least)[1]}")
    return how


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else FEW)
def test_the_pipeline_of_a_seed_loses_nothing_in_silence(seed: int) -> None:
    require(draw(seed), f"HEADRACE_SEED={seed}")


@pytest.mark.smoke("*newer than what was read t*", "*blocking snapshot*")
@pytest.mark.parametrize("what", KEPT)
def test_a_pipeline_that_once_showed_something_wrong_does_not_any_more(what: str) -> None:
    assert require(KEPT[what], what) == "level"


@pytest.mark.soak
def test_thousands_of_pipelines_lose_nothing_in_silence() -> None:
    begin = int(SEED or 0)
    seeds = itertools.count(begin)
    found = Counter(require(draw(seed), f"HEADRACE_SEED={seed}") for seed, _ in zip(seeds, range(MANY), strict=False))
    assert found["level"] >= (1 - MOST_STOPPED) * MANY, found


@pytest.mark.soak
def test_a_hundred_pipelines_through_spark_lose_nothing_in_silence(spark: SparkSession, tmp_path: Path) -> None:
    begin = int(SEED or 0)
    found: Counter[str] = Counter()
    for seed in range(begin, begin + int(os.environ.get("HEADRACE_PIPELINES", "100"))):
        pipeline = through_spark.fewer_batches(draw(seed))
        folder = tmp_path / str(seed)
        (folder / "server").mkdir(parents=True)
        try:
            outcome = through_spark.run(pipeline, folder, spark)
        except Exception as error:
            pytest.fail(f"HEADRACE_SEED={seed}: {type(error).__name__}: {error}\n\n{written(pipeline)}")
        shutil.rmtree(folder)
        found["level" if outcome.stopped is None else outcome.stopped.message] += 1
    assert found["level"] >= (1 - MOST_STOPPED) * found.total(), found
