"""Contract suites for people who add a source, a format or a sink, and what their tests need besides.

    from headrace.testing import SinkContract

    class TestMySink(SinkContract):
        def sink(self, folder): ...
        def content(self, folder): ...

pytest collects the subclass and runs the whole suite on it. `pip install 'headrace[testing]'` brings pytest and
hypothesis, which nothing else of Headrace imports; `docs/write-your-own.md` has an example of each suite.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.capture import CaptureContract as CaptureContract
    from headrace.testing.captured_database import CapturedDatabase as CapturedDatabase
    from headrace.testing.formats import FormatContract as FormatContract
    from headrace.testing.sinks import SinkContract as SinkContract
    from headrace.testing.sources import SourceContract as SourceContract
    from headrace.testing.table_sinks import TableSinkContract as TableSinkContract
    from headrace.testing.table_target import TableTarget as TableTarget

PLACES = {
    "CaptureContract": "headrace.testing.capture",
    "CapturedDatabase": "headrace.testing.captured_database",
    "FormatContract": "headrace.testing.formats",
    "SinkContract": "headrace.testing.sinks",
    "SourceContract": "headrace.testing.sources",
    "TableSinkContract": "headrace.testing.table_sinks",
    "TableTarget": "headrace.testing.table_target",
}
"""Where each is imported from when it is first used."""

# So that a failing `assert` of a suite shows its values, as one in a test file does.
if "pytest" in sys.modules:
    sys.modules["pytest"].register_assert_rewrite(*sorted({*PLACES.values(), "headrace.testing.table_machine"}))

__all__ = sorted(PLACES)


def __getattr__(name: str) -> Any:
    module = PLACES.get(name)
    if module is None:
        raise AttributeError(f"module 'headrace.testing' has no attribute '{name}'")
    return getattr(importlib.import_module(module), name)
