"""Local files get the modes that Hadoop gives them, without a process for each."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("umask", ["022", "027"])
def test_files_and_folders_get_the_modes_that_hadoop_gives_them(spark: Any, tmp_path: Path, umask: str) -> None:
    jvm = spark.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop
    conf = hadoop.conf.Configuration(spark.sparkContext._jsc.hadoopConfiguration())
    conf.set("fs.permissions.umask-mode", umask)
    conf.setBoolean("fs.file.impl.disable.cache", True)
    local = jvm.java.net.URI("file:///")
    ours = hadoop.fs.FileSystem.get(local, conf)
    assert ours.getClass().getName() == "headrace.spark.UnforkedFiles"
    theirs = hadoop.fs.LocalFileSystem()
    theirs.initialize(local, conf)
    found = []
    for files in (ours, theirs):
        folder = tmp_path / str(len(found))
        at = {
            name: hadoop.fs.Path(str(folder / name)) for name in ("a/b", "odd %C3é", "640", "1777", "a/file", "a/new")
        }
        for name in ("a/b", "odd %C3é"):
            assert files.mkdirs(at[name])
        for mode in ("640", "1777"):
            assert files.mkdirs(at[mode], hadoop.fs.permission.FsPermission(mode))
        for name in ("a/file", "a/new"):
            files.create(at[name]).close()
        files.setPermission(at["a/file"], hadoop.fs.permission.FsPermission("604"))
        found.append({str(file.relative_to(folder)): stat.filemode(file.stat().st_mode) for file in folder.rglob("*")})
    assert found[0] == found[1]
    assert found[0]["a/file"] == "-rw----r--"
