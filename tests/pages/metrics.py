"""The tables of docs/metrics.md, from the registries of the programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock

from gpu_scheduler.controller.run import ControllerProcess
from gpu_scheduler.driver.checkpoint import Checkpoint
from gpu_scheduler.driver.run import DriverProcess
from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.monitor.run import MonitorProcess
from gpu_scheduler.scheduler.run import SchedulerProcess
from gpu_scheduler.settings import DriverSettings, LeaderSettings, MonitorSettings, RunSettings
from gpu_scheduler.webhook.run import observed
from tests.contracts.roles import ROOT
from tests.pages.parts import Page, code, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry

_OF_THE_LIBRARY: Final = "process_"
"""Metrics of the process that prometheus_client adds; their meaning is the library's."""
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}


def registries() -> dict[str, CollectorRegistry]:
    """Return the registry of each program, as it is before the first request."""
    api: Any = Mock(spec=ApiClient)
    monitor = MonitorSettings(node_name="node1", monitor_source="simulated", simulated_inventory=Path("none"))
    return {
        "scheduler": SchedulerProcess(RunSettings(), api).observed(),
        "controller": ControllerProcess(LeaderSettings(), api).observed(),
        "webhook": observed("", float)[0],
        "monitor": MonitorProcess(monitor, api).observed(),
        "driver": DriverProcess(DriverSettings(node_name="node1"), api, Checkpoint(Path("none"))).registry,
    }


def rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, labels and meaning of each metric, in order of name."""
    found = {}
    for collector in registry._collector_to_names:
        for family in collector.collect():
            of_samples = family.samples[0].labels if family.type == "info" else ()
            labels = of_samples or getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            name = family.name + _SUFFIXES.get(family.type, "")
            found[name] = (name, family.type, ", ".join(map(code, labels)), family.documentation)
    return (found[name] for name in sorted(found) if not name.startswith(_OF_THE_LIBRARY))


def pages() -> Iterator[Page]:
    """Yield the page, with a table for each program."""
    head = ("metric", "type", "labels", "meaning")
    parts = {
        f"metrics of the {program}": tuple(table(head, ((code(name), *rest) for name, *rest in rows(registry))))
        for program, registry in registries().items()
    }
    yield Page(ROOT / "docs/metrics.md", parts)
