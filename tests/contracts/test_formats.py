"""Each of our formats that writes keeps the contract of any format."""

from __future__ import annotations

from typing import Any, ClassVar

from headrace.formats.codec import ArrowFormat
from headrace.registry import find
from headrace.testing import FormatContract


class OurFormat(FormatContract):
    name: ClassVar[str]
    options: ClassVar[dict[str, Any]] = {}

    def format(self) -> ArrowFormat:
        kind: type[ArrowFormat] = find("format", self.name)
        return kind.of(self.options)


class TestCanalJson(OurFormat):
    name = "canal_json"


class TestMaxwellJson(OurFormat):
    name = "maxwell_json"


class TestOggJson(OurFormat):
    name = "ogg_json"


class TestDebeziumJson(OurFormat):
    name = "debezium_json"
    options: ClassVar[dict[str, Any]] = {
        "topic_prefix": "server",
        "schemas_enable": True,
        "skipped_operations": "none",
        "tombstones_on_delete": False,
    }


class TestDtsAvro(OurFormat):
    name = "dts_avro"


class TestQlikJson(OurFormat):
    name = "qlik_json"


class TestShareplexJson(OurFormat):
    name = "shareplex_json"
