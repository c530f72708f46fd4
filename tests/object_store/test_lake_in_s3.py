"""Rule: tables in S3 are kept by the same ways as those in a local folder, and hold the same rows."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any
from uuid import uuid4

import pytest
from tests.object_store.slow_store import KEY, SECRET, SlowStore
from tests.support.lake_mirror import Mirror, T, made
from tests.support.switched_ways import Tables, run

from headrace import faultpoints
from headrace.testing.change_history import Batch

pytestmark = pytest.mark.system


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_ways_that_are_switched_at_random_leave_what_a_model_has(
    spark: Any, bucket: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = made(kind, spark, f"s3a://{bucket}/a lake", partition_by=["parted.re;gion"])
    reached = counted(monkeypatch, mirror)
    tables = Tables(mirror, random.Random(35))
    files = count_files(monkeypatch, tables)
    run(tables, 60, [(15, 60)])
    assert len(reached) > 3
    assert len(files) > 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_only_a_file_that_no_version_names_is_an_orphan(spark: Any, bucket: str, kind: str) -> None:
    mirror = made(kind, spark, f"s3a://{bucket}/a lake")
    for number in range(3):
        mirror.bring(Batch(T).add("u", T, 10 + number, {"id": "1", "a": str(number)}))
    before = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    assert mirror.kept.orphan_files(spark, T.id, before) == []
    folder = mirror.kept.target(spark, T.id).data_folder()
    assert not isinstance(folder, str)
    paths = [path for path, *_ in folder.storage.files_below(folder.path) if "/headrace-" in path]
    orphan = folder.location(f"headrace-{uuid4()}.zstd.parquet")
    folder.storage.write(orphan, folder.storage.read(paths[0]))
    (found,) = mirror.kept.orphan_files(spark, T.id, before)
    assert (found.path, found.size) == (orphan, folder.storage.size(paths[0]))
    mirror.kept.delete_orphans(spark, T.id, [found])
    assert folder.storage.size(orphan) is None
    assert mirror.kept.orphan_files(spark, T.id, before) == []
    assert [tuple(row)[:2] for row in mirror.read().collect()] == [(1, "2")]


def test_a_catalogue_that_reaches_s3_by_itself_has_the_same(
    spark: Any, store: SlowStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogue = {
        "catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "catalog.s3.endpoint": store.address,
        "catalog.s3.path-style-access": "true",
        "catalog.s3.access-key-id": KEY,
        "catalog.s3.secret-access-key": SECRET,
        "catalog.client.region": "us-east-1",
    }
    mirror = made("iceberg", spark, f"s3a://{bucket}/a lake", **catalogue)
    reached = counted(monkeypatch, mirror)
    tables = Tables(mirror, random.Random(37))
    files = count_files(monkeypatch, tables)
    run(tables, 40, [(15, 60)])
    assert len(reached) > 1
    assert len(files) > 1


def test_a_login_that_changes_is_taken_up(spark: Any, bucket: str) -> None:
    mirror = made("delta", spark, f"s3a://{bucket}/lake")
    for number in range(4):
        batch = Batch(T).add("u", T, 10 + number, {"id": "1", "a": str(number)})
        mirror.bring(batch)
        spark.conf.set("fs.s3a.access.key", "another-key")
    spark.conf.unset("fs.s3a.access.key")
    known = mirror.kept._indexes.get(f"s3a://{bucket}/lake/dbo/t")
    assert known is not None
    assert "another-key" in known.files.storage.login
    assert [tuple(row)[:2] for row in mirror.read().collect()] == [(1, "3")]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_store_that_is_busy_and_slow_loses_nothing(
    spark: Any, store: SlowStore, bucket: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = made(kind, spark, f"s3a://{bucket}/lake")
    reached = counted(monkeypatch, mirror)
    monkeypatch.setattr(store, "refused", 0.1)
    monkeypatch.setattr(store, "late", 0.05)
    before = store.refusals
    run(Tables(mirror, random.Random(36)), 15, [(15, 60)])
    assert store.refusals > before + 50
    assert reached


def counted(monkeypatch: pytest.MonkeyPatch, mirror: Mirror) -> list[str]:
    """The commits by the index."""
    found: list[str] = []

    def reach(name: str) -> None:
        if name == mirror.files_written:
            found.append(name)

    monkeypatch.setattr(faultpoints, "reach", reach)
    return found


def count_files(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> list[Any]:
    """What a first snapshot was written into where it was read."""
    found: list[Any] = []
    files = tables._files

    def counting() -> Any:
        made = files()
        found.extend([] if made is None else made.tables)
        return made

    monkeypatch.setattr(tables, "_files", counting)
    return found
