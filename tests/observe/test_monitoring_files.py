"""Rule: the board and the alerts that come with Headrace ask only for what a run exports, in words that Prometheus and
Grafana understand; and nothing that a run exports is unknown to these tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from tests.observe.whole_progress import ALL

from headrace.observe import metrics

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
EXPORTED = {metric.name: {"pipeline", *metric.values[0][0]} for metric in metrics.all_metrics(ALL)}
"""The labels of each metric."""
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "prometheus_rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
TARGETS = [(panel, target) for panel in BOARD["panels"] for target in panel["targets"]]
SCRAPED = {"up": {"job", "instance"}}
"""What Prometheus itself adds."""


def asked(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of an expression of PromQL, each with the labels that it is chosen by."""
    found = str(promql_parser.parse(expression))
    for name, labels in re.findall(r"\b(up|headrace_\w+)\{([^}]*)\}", found):
        yield name, set(re.findall(r"(\w+)[=!]", labels))


def filled(expression: str) -> str:
    """An expression of the board as Grafana sends it."""
    return expression.replace("$__rate_interval", "1m").replace("$pipeline", ".*")


def test_every_metric_of_the_code_is_known_here() -> None:
    code = Path(metrics.__file__).read_text(encoding="utf-8")
    assert set(re.findall(r'"(headrace_\w+)"', code)) == set(EXPORTED)


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_asks_for_what_is_exported_and_says_what_to_do(rule: dict[str, Any]) -> None:
    found = dict(asked(rule["expr"]))
    assert found
    for name, labels in found.items():
        assert labels <= {**EXPORTED, **SCRAPED}[name]
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"] and rule["annotations"]["action"]
    known = set().union(*({**EXPORTED, **SCRAPED}[name] for name in found))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= known


def test_no_alert_comes_twice() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) > 5


@pytest.mark.parametrize(("panel", "target"), TARGETS, ids=[f"{p['title']} {t['refId']}" for p, t in TARGETS])
def test_a_panel_asks_for_what_is_exported_and_names_its_labels(panel: dict[str, Any], target: dict[str, Any]) -> None:
    found = dict(asked(filled(target["expr"])))
    assert found
    for name, labels in found.items():
        assert labels <= EXPORTED[name]
    known = set().union(*(EXPORTED[name] for name in found))
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known


def test_the_board_asks_the_data_source_that_the_user_chooses_and_shows_the_main_metrics() -> None:
    assert {target["datasource"]["uid"] for _, target in TARGETS} == {"${datasource}"}
    assert [variable["name"] for variable in BOARD["templating"]["list"]] == ["datasource", "pipeline"]
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    shown = {name for _, target in TARGETS for name, _ in asked(filled(target["expr"]))}
    aside = {"no_event_messages", "shortened_changes", "out_of_range_values", "null_values"}
    left = {"headrace_batches_total", "headrace_rows_per_second", "headrace_retention_seconds"}
    alerted = {"headrace_lost_tables", "headrace_uncaptured_tables", "headrace_parked_tables"}
    assert set(EXPORTED) - shown == left | alerted | {f"headrace_{name}_total" for name in aside}
