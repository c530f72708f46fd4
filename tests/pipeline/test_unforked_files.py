"""Local files get the modes that Hadoop gives them, without a process for each, and folders list as Hadoop's do."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from headrace.spark.session import use_unforked_files


class Configuration:
    """Hadoop's settings of a session."""

    chosen: ClassVar[dict[str, str]] = {}

    def get(self, name: str) -> str | None:
        return self.chosen.get(name)

    def set(self, name: str, value: str) -> None:
        self.chosen[name] = value


def test_executors_of_a_cluster_are_not_told_of_classes_that_only_the_driver_has() -> None:
    # A cluster's JVM must not be asked to compile anything: there is none here.
    context = SimpleNamespace(_jvm=None, _jsc=SimpleNamespace(isLocal=lambda: False, hadoopConfiguration=Configuration))
    use_unforked_files(SimpleNamespace(sparkContext=context))
    assert not Configuration.chosen


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


def test_a_folder_lists_as_hadoop_lists_it(spark: Any, tmp_path: Path) -> None:
    jvm = spark.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop
    local = jvm.java.net.URI("file:///")
    ours = hadoop.fs.FileSystem.get(local, spark.sparkContext._jsc.hadoopConfiguration())
    theirs = hadoop.fs.LocalFileSystem()
    theirs.initialize(local, spark.sparkContext._jsc.hadoopConfiguration())
    (tmp_path / "folder" / "below").mkdir(parents=True)
    for name in ("a", ".a.crc", "odd %C3é", "a:b", "_hidden", ".b", "with blank"):
        (tmp_path / "folder" / name).write_text(name)
    (tmp_path / "folder" / "a").chmod(0o604)
    (tmp_path / "folder" / "to a").symlink_to("a")
    (tmp_path / "folder" / "to below").symlink_to("below")
    (tmp_path / "folder" / "to nothing").symlink_to("nothing")
    (tmp_path / "empty").mkdir()
    listed = []
    for files in (ours, theirs, ours.getRaw(), theirs.getRaw()):
        of: list[Any] = []
        for name in ("folder", "empty", "folder/a", "folder/to below"):
            found = files.listStatus(hadoop.fs.Path(str(tmp_path / name)))
            of += sorted(
                (
                    one.getPath().toString(), one.getLen(), one.isDirectory(), one.isSymlink(), one.getBlockSize(),
                    one.getModificationTime(), one.getReplication(), one.getPermission().toString(), one.getOwner(),
                    one.getGroup(),
                )
                for one in found
            )  # fmt: skip
        listed.append(of)
    assert listed[0] == listed[1]
    assert listed[2] == listed[3]
    assert len(listed[2]) > len(listed[0]) > 8
    missing = []
    for files in (ours, theirs):
        with pytest.raises(Exception, match="FileNotFoundException") as failure:
            files.listStatus(hadoop.fs.Path(str(tmp_path / "nothing")))
        missing.append(str(failure.value.java_exception))
    assert missing[0] == missing[1]
