"""Each alert fires on what it is for and on nothing else, as Prometheus' own promtool finds."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from boards.panels import DOCS_URL
from tests.contracts.rendering import rendered
from tests.integration.alert_cases import ALERTS, END, SCRAPE, Alert
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.alert_cases import Series
    from tests.objects import Object

RULES: Final = "rules.json"
STEP: Final = 5
"""Seconds between two evaluations: a `for:` or a window that is a tenth longer or shorter has another last one."""
MOMENTS: Final = range(0, END, 13 * STEP)
"""When an alert that stays quiet is checked: at moments of a scrape and between two."""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Object]:
    """The rules that role observability renders, by the alert's name."""
    objects = rendered(
        tmp_path_factory.mktemp("rendered"), ["observability"], isolation="dra", monitor_source="simulated"
    )
    (found,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    return {rule["alert"]: rule for group in found["spec"]["groups"] for rule in group["rules"]}


def test_each_alert_has_its_promise(rules: dict[str, Object]) -> None:
    """No promise is about an alert that is not there."""
    assert sorted(map(str, ALERTS)) == sorted(rules)


@pytest.mark.promise("alert-1")
@pytest.mark.parametrize("alert", ALERTS, ids=str)
def test_an_alert_fires_after_its_wait_and_not_before_nor_at_its_limit(
    rules: dict[str, Object], alert: Alert, tmp_path: Path
) -> None:
    """Severity, labels and message are the promised ones."""
    group = {"name": "rules", "rules": [rules[alert.name]]}
    (tmp_path / RULES).write_text(json.dumps({"groups": [group]}), encoding="utf-8")
    # JSON is YAML.
    file = tmp_path / "test.json"
    tests = list(_tests(alert))
    file.write_text(
        json.dumps({"rule_files": [RULES], "evaluation_interval": f"{STEP}s", "tests": tests}), encoding="utf-8"
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


def _tests(alert: Alert) -> Iterator[Object]:
    """Yield promtool's tests of the alert."""
    for case in alert.firing:
        fires = {
            "exp_labels": {"severity": alert.severity, "namespace": SYSTEM_NAMESPACE, **case.labels},
            "exp_annotations": {
                "summary": case.summary,
                "runbook_url": f"{DOCS_URL}/alerts.md#{alert.name.lower()}",
            },
        }
        first = case.begins + alert.wait
        moments = {first: [fires], **({first - STEP: []} if first else {})}
        if case.ends is not None:
            # Whether the last value of a window belongs to it differs between Prometheus 2 and 3.
            moments |= {case.ends - STEP: [fires], case.ends + STEP: []}
        yield _test(alert, case.series, moments)
    for series in alert.quiet:
        yield _test(alert, series, {second: [] for second in MOMENTS})


def _test(alert: Alert, series: Series, moments: dict[int, list[Object]]) -> Object:
    """Return promtool's test: what fires at these seconds."""
    return {
        "name": f"{alert.name} on {series}",
        "interval": f"{SCRAPE}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{second}s", "alertname": alert.name, "exp_alerts": expected}
            for second, expected in moments.items()
        ],
    }
