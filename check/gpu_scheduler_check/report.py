"""Makes the text of the report. This module must not use the environment, the clock or an output.

Each function gets its input as arguments, so that a test needs no process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Reported for a missing variable. An empty variable is reported as empty: CUDA reads a missing variable as "every GPU",
# an empty one as "no GPU".
NOT_SET: Final = "(not set)"
# A day: no check needs longer, and the limit catches typing errors.
LONGEST_INTERVAL: Final = 86_400


@dataclass(frozen=True, slots=True)
class Report:
    """Node and devices of one container; None if the variable is missing."""

    node: str | None
    devices: str | None

    def block(self) -> str:
        """Return the three lines for the log, each ended by a newline."""
        return f"Node Name: {_text(self.node)}\nCUDA_VISIBLE_DEVICES: {_text(self.devices)}\n---\n"

    def metrics(self, reports: int) -> str:
        """Return the Prometheus text exposition after `reports` reports."""
        labels = f'node="{_escaped(_text(self.node))}",cuda_visible_devices="{_escaped(_text(self.devices))}"'
        return (
            "# HELP gpu_scheduler_check_info Node and devices that this container was given.\n"
            "# TYPE gpu_scheduler_check_info gauge\n"
            f"gpu_scheduler_check_info{{{labels}}} 1\n"
            "# HELP gpu_scheduler_check_reports_total Reports written since the start.\n"
            "# TYPE gpu_scheduler_check_reports_total counter\n"
            f"gpu_scheduler_check_reports_total {reports}\n"
        )


def read_report(environment: Mapping[str, str]) -> Report:
    """Read the two variables; NODE_NAME comes from the downward API."""
    return Report(environment.get("NODE_NAME"), environment.get("CUDA_VISIBLE_DEVICES"))


def interval_seconds(text: str) -> float:
    """Read CHECK_INTERVAL: seconds above 0 and at most 86,400, with or without a trailing `s`; else ValueError."""
    try:
        seconds = float(text.strip().removesuffix("s"))
    except ValueError:
        seconds = 0.0
    # The comparison also refuses `nan` and `inf`, which float() takes.
    if not 0 < seconds <= LONGEST_INTERVAL:
        raise ValueError(f'cannot use CHECK_INTERVAL "{text}": must be 0 to 86400 seconds, not 0 (example: 10s)')
    return seconds


def _text(value: str | None) -> str:
    return NOT_SET if value is None else value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
