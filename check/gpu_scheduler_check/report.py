"""What the witness says, as pure text: no environment, clock or output here.

Each function takes what it tells as arguments, so that a test needs no process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Shown in place of a variable that is not there. One that is there and empty is shown empty: CUDA reads
# the first as "every GPU" and the second as "no GPU".
NOT_SET: Final = "(not set)"
# A day: nobody waits longer for a sign of life, and the limit keeps typing errors out.
LONGEST_INTERVAL: Final = 86_400


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one container was given; None where the variable is missing."""

    node: str | None
    devices: str | None

    def block(self) -> str:
        """Return the three lines that stand in the log, each ended by a newline."""
        return f"Node Name: {_shown(self.node)}\nCUDA_VISIBLE_DEVICES: {_shown(self.devices)}\n---\n"

    def metrics(self, reports: int) -> str:
        """Return the Prometheus text exposition after that many reports."""
        labels = f'node="{_escaped(_shown(self.node))}",cuda_visible_devices="{_escaped(_shown(self.devices))}"'
        return (
            "# HELP gpu_scheduler_check_info Node and devices that this container was given.\n"
            "# TYPE gpu_scheduler_check_info gauge\n"
            f"gpu_scheduler_check_info{{{labels}}} 1\n"
            "# HELP gpu_scheduler_check_reports_total Reports written since the start.\n"
            "# TYPE gpu_scheduler_check_reports_total counter\n"
            f"gpu_scheduler_check_reports_total {reports}\n"
        )


def sighting(environment: Mapping[str, str]) -> Sighting:
    """Read the two variables; NODE_NAME comes from the downward API."""
    return Sighting(environment.get("NODE_NAME"), environment.get("CUDA_VISIBLE_DEVICES"))


def interval_seconds(text: str) -> float:
    """Read CHECK_INTERVAL: a positive number of seconds, with or without a trailing `s`."""
    try:
        seconds = float(text.strip().removesuffix("s"))
    except ValueError:
        seconds = 0.0
    # The comparison also refuses `nan` and `inf`, which float() takes.
    if not 0 < seconds <= LONGEST_INTERVAL:
        raise ValueError(f'cannot use CHECK_INTERVAL "{text}": must be 0 to 86400 seconds, not 0 (example: 10s)')
    return seconds


def _shown(value: str | None) -> str:
    return NOT_SET if value is None else value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
