"""Rule: the JVM is asked once where a class or static method is, and again for what was not found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.clientserver import JavaClient
from py4j.java_gateway import JavaClass, JavaPackage
from py4j.protocol import REFLECTION_COMMAND_NAME
from pyspark.sql import SparkSession

from headrace.spark.java_names import remember_java_names


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What Python asks the JVM about names."""
    asked: list[str] = []
    send = JavaClient.send_command

    def seen(self: Any, command: str, *args: Any, **options: Any) -> Any:
        if command.startswith(REFLECTION_COMMAND_NAME):
            asked.append(command)
        return send(self, command, *args, **options)

    monkeypatch.setattr(JavaClient, "send_command", seen)
    yield asked


def test_a_class_and_its_static_methods_are_looked_up_once(spark: SparkSession, lookups: list[str]) -> None:
    remember_java_names(spark)
    jvm: Any = spark.sparkContext._jvm
    said = [
        lambda: jvm.java.util.zip.CRC32().getValue(),
        lambda: jvm.java.lang.Long.toHexString(255),
        # By its whole name, and by what PySpark imports.
        lambda: getattr(jvm, "java.lang.Long").toBinaryString(2),
        lambda: jvm.PythonUtils.toSeq([]).isEmpty(),
    ]
    for say in said:
        first = say()
        lookups.clear()
        assert say() == first
        assert lookups == []


def test_a_class_that_is_not_there_yet_is_looked_up_again(spark: SparkSession, lookups: list[str]) -> None:
    jvm: Any = spark.sparkContext._jvm
    assert isinstance(jvm.java.util.zip.CRC32, JavaClass)
    for _ in range(2):
        lookups.clear()
        assert isinstance(jvm.java.util.zip.Nothing, JavaPackage)
        assert isinstance(jvm.nowhere.Nothing, JavaPackage)
        assert len(lookups) == 3


def test_a_method_that_is_not_there_is_said_by_its_name(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    jvm: Any = spark.sparkContext._jvm
    with pytest.raises(Py4JError, match=r"java\.lang\.Long\.nothing does not exist in the JVM"):
        jvm.java.lang.Long.nothing()
