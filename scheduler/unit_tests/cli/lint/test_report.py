"""Each format has the same findings, and no text of users forges a line of it."""

from __future__ import annotations

import json

import pytest
import yaml

from gpu_scheduler.cli.lint.findings import Finding, Severity
from gpu_scheduler.cli.lint.formats import LintOutput
from gpu_scheduler.cli.lint.report import report

FINDINGS = (
    Finding(Severity.WARNING, "GpuHeld", "100% of it, and: more", "b,c:d%.yaml", 7, "Pod", "ml", "late-0"),
    Finding(Severity.ERROR, "Unreadable", "a\r\n::error::forged", "a\n.yaml"),
)


@pytest.mark.promise("lint-6")
def test_github_reads_each_finding_as_one_command() -> None:
    """Escaped as GitHub's workflow commands are: more in a property than in the message."""
    assert report(FINDINGS, LintOutput.GITHUB, headers=True).splitlines() == [
        "::error file=a\\n.yaml,title=Unreadable::a\\r\\n::error::forged",
        "::warning file=b%2Cc%3Ad%25.yaml,line=7,title=GpuHeld::Pod/late-0: 100%25 of it, and: more",
    ]


def test_gitlab_reads_a_report_of_code_quality() -> None:
    """With all fields that its documentation names. A finding that moves to another line stays the same finding."""
    moved = Finding(Severity.WARNING, "GpuHeld", "100% of it, and: more", "b,c:d%.yaml", 9, "Pod", "ml", "late-0")

    second, first = json.loads(report(FINDINGS, LintOutput.GITLAB, headers=True))
    (again,) = json.loads(report((moved,), LintOutput.GITLAB, headers=True))

    assert set(first) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert (first["severity"], second["severity"]) == ("minor", "major")
    assert first["location"] == {"path": "b,c:d%.yaml", "lines": {"begin": 7}}
    assert (again["fingerprint"], again["location"]["lines"]) == (first["fingerprint"], {"begin": 9})
    assert first["fingerprint"] != second["fingerprint"]


def test_json_and_yaml_have_the_same_fields() -> None:
    """As items of a List, like every verb."""
    found = json.loads(report(FINDINGS, LintOutput.JSON, headers=True))

    assert found == yaml.safe_load(report(FINDINGS, LintOutput.YAML, headers=True))
    assert found["items"][1] == {
        "apiVersion": "cli.agentaflow.io/v1",
        "kind": "Finding",
        "file": "b,c:d%.yaml",
        "line": 7,
        "objectKind": "Pod",
        "namespace": "ml",
        "name": "late-0",
        "severity": "warning",
        "finding": "GpuHeld",
        "message": "100% of it, and: more",
    }


def test_the_table_has_a_line_for_each_finding() -> None:
    """With file and line as editors read them, and the whole message."""
    first, second, third = report(FINDINGS, LintOutput.TABLE, headers=True).splitlines()

    assert first.split() == ["FILE:LINE", "OBJECT", "SEVERITY", "FINDING", "MESSAGE"]
    assert second.split("   ")[0] == "a\\n.yaml"
    assert third.split() == [
        "b,c:d%.yaml:7",
        "Pod/late-0",
        "warning",
        "GpuHeld",
        *["100%", "of", "it,", "and:", "more"],
    ]
