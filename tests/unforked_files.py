"""Local files of the suite's Spark without a process for each file that it makes (`tests/java/UnforkedFiles.java`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE = Path(__file__).parent / "java" / "UnforkedFiles.java"
_CLASS = "headrace.tests.UnforkedFiles"


def use_unforked_files(spark: SparkSession, folder: Path) -> None:
    """Compile the classes by the compiler that Spark brings, and let Hadoop take them from now on.

    Args:
        spark: a session that has just been started, on this machine.
        folder: where the classes lie as long as it runs.
    """
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(jvm.java.io.File(str(folder)).toURI().toURL())
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.file.impl", _CLASS)
    hadoop.set("fs.AbstractFileSystem.file.impl", f"{_CLASS}$Context")
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
