"""Rule: a plan says which fields of messages stay empty because the source does not name transactions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.pipeline.model import read_model
from headrace.pipeline.plan import unsaid_of_transactions


@pytest.mark.parametrize(
    ("format", "named", "said"),
    [
        ("qlik_json", False, "transactionId, transactionEventCounter and transactionLastEvent"),
        ("shareplex_json", False, "trans, seq, size and idx"),
        ("qlik_json", True, None),
        ("shareplex_json", True, None),
        ("canal_json", False, None),
    ],
)
def test_fields_that_need_transactions_are_named(tmp_path: Path, format: str, named: bool, said: str | None) -> None:
    source = {"type": "sqlserver", "driver": "emulator", "hostname": str(tmp_path), "database": "shop"}
    text = {
        "source": {**source, "provide.transaction.metadata": named},
        "sinks": [{"type": "kafka", "bootstrap.servers": "one:9092", "format": {"type": format}}],
        "pipeline": {"name": "p", "checkpoint": "./checkpoint"},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(text))
    found = unsaid_of_transactions(read_model(file))
    assert len(found) == (said is not None)
    assert said is None or (said in found[0] and "provide_transaction_metadata" in found[0])
