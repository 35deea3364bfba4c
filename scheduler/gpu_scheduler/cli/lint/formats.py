"""The formats of lint's output. Nothing slow is imported, because `--help` loads it."""

from __future__ import annotations

from enum import StrEnum


class LintOutput(StrEnum):
    """The formats of lint's `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    GITHUB = "github"
    GITLAB = "gitlab"
