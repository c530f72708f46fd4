"""The demo's folder: refused when it is somebody else's, and its pipelines are real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.mysql import needs_mariadb
from tests.support.postgresql import needs_postgres

from headrace.errors import OptionError
from headrace.pipeline import load_pipeline
from headrace_emulators.demo.folder import make_folder, write_pipelines
from headrace_emulators.demo.real_server import real_server


def test_a_new_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [str(make_folder(None)) for _ in range(2)] == ["headrace-demo", "headrace-demo-2"]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(OptionError) as caught:
        make_folder(tmp_path)
    assert str(caught.value) == (
        f"The folder '{tmp_path}' holds something else. Name an empty or a new one with --dir."
    )
    with pytest.raises(OptionError, match="holds an earlier demo"):
        make_folder(make_folder(tmp_path / "new"))


@pytest.mark.parametrize(
    "kind",
    [
        "sqlserver",
        "db2",
        pytest.param("postgresql", marks=needs_postgres),
        pytest.param("mariadb", marks=needs_mariadb),
    ],
)
@pytest.mark.parametrize("bootstrap", [None, "127.0.0.1:9092"])
def test_its_pipelines_load(tmp_path: Path, bootstrap: str | None, kind: str) -> None:
    files = write_pipelines(tmp_path, "shop", bootstrap, kind, real_server(kind, Path("/tmp/s")))
    names = [load_pipeline(file).name for file in files]
    assert names == (["shop"] if bootstrap is None else ["shop-in", "shop-out"])
