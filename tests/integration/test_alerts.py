"""Each alert fires on what it is for and on nothing else, as Prometheus' own promtool finds."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from boards.panels import DOCS_URL
from tests.contracts.rendering import rendered
from tests.integration.alert_cases import ALL, Case
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects import Object

RULES: Final = "rules.yaml"


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Object:
    """The groups of rules that role observability renders."""
    objects = rendered(
        tmp_path_factory.mktemp("rendered"), ["observability"], isolation="dra", monitor_source="simulated"
    )
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    spec: Object = rule["spec"]
    return spec


@pytest.fixture(scope="module")
def alerts(groups: Object) -> dict[str, Object]:
    """The alerts by name."""
    return {rule["alert"]: rule for group in groups["groups"] for rule in group["rules"]}


def test_each_alert_has_a_row_that_fires_and_one_that_does_not(alerts: dict[str, Object]) -> None:
    """No row is about an alert that is not there."""
    assert {case.alert for case in ALL if case.summary} == set(alerts)
    assert {case.alert for case in ALL if not case.summary} == set(alerts)


@pytest.mark.promise("alert-1")
@pytest.mark.parametrize("case", ALL, ids=str)
def test_alert(groups: Object, alerts: dict[str, Object], case: Case, tmp_path: Path) -> None:
    """Labels and message are those of the row."""
    alert = alerts[case.alert]
    expected = {
        "exp_labels": {**alert["labels"], **case.labels},
        "exp_annotations": {"summary": case.summary, "runbook_url": f"{DOCS_URL}/alerts.md#{case.alert.lower()}"},
    }
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{case.minute}m",
                "alertname": case.alert,
                "exp_alerts": [expected] if case.summary else [],
            }
        ],
    }
    (tmp_path / RULES).write_text(yaml.safe_dump(groups), encoding="utf-8")
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [RULES], "evaluation_interval": "1m", "tests": [test]}), encoding="utf-8"
    )

    done = subprocess.run(
        (program("promtool"), "test", "rules", file.name),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=limit(30),
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
