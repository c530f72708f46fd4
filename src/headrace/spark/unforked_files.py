"""Local files of a Spark on this machine without a process for each file that it makes (`UnforkedFiles.java`).

Hadoop starts `chmod` for each file and `readlink` for each rename where it has no native library, which Spark does not
bring: 10 to 30 ms each, several times in each commit of a Delta table.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "headrace.spark.UnforkedFiles"
_SETTING = "fs.file.impl"


def use_unforked_files(spark: SparkSession) -> None:
    """Compile the classes by the compiler that Spark brings, and let Hadoop take them from now on.

    Nothing is done where Hadoop has its native library, or somebody chose another class for local files.

    Args:
        spark: a session with a local master that has just been started.
    """
    jvm: Any = spark.sparkContext._jvm
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    if hadoop.get(_SETTING) is not None or jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable():
        return
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(files("headrace.spark").joinpath("UnforkedFiles.java").read_text(encoding="utf-8"))
    # Spark removes the folder when it ends.
    folder = Path(str(spark.sparkContext._temp_dir)) / "classes"
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(jvm.java.io.File(str(folder)).toURI().toURL())
    local = jvm.java.net.URI("file:///")
    kept = jvm.org.apache.hadoop.fs.FileSystem.get(local, hadoop)
    hadoop.set(_SETTING, _CLASS)
    hadoop.set("fs.AbstractFileSystem.file.impl", f"{_CLASS}$Context")
    # Out of what Hadoop keeps, so that the next one is ours.
    kept.close()
