"""Runs a real Prometheus that scrapes programs under test, and asks it as Grafana does."""

from __future__ import annotations

import http.client
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.programs import Process, program
from tests.ports import free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.objects import Object

SCRAPE: Final = 1
"""Seconds between two scrapes, and between two evaluations of rules."""


@dataclass(frozen=True, slots=True)
class Target:
    """A program that is scraped, with the labels that the operator of Prometheus gives its series."""

    job: str
    pod: str
    port: int
    namespace: str = SYSTEM_NAMESPACE


class Prometheus:
    """Prometheus, with its data in a temporary folder."""

    def __init__(self, folder: Path, targets: Iterable[Target], **more: Any) -> None:
        """Start it and wait until it is ready. `more` are further sections of its configuration, as `rule_files`."""
        self.port = free_port()
        every = {"scrape_interval": f"{SCRAPE}s", "scrape_timeout": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"}
        jobs: dict[str, list[Object]] = {}
        for target in targets:
            labels = {"namespace": target.namespace, "pod": target.pod}
            jobs.setdefault(target.job, []).append({"targets": [f"127.0.0.1:{target.port}"], "labels": labels})
        scrapes = [{"job_name": job, "static_configs": group} for job, group in jobs.items()]
        config = folder / "prometheus.yml"
        # JSON is YAML.
        config.write_text(json.dumps({"global": every, "scrape_configs": scrapes, **more}), encoding="utf-8")
        self.process = Process(
            "prometheus",
            [
                str(program("prometheus")),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            folder / "prometheus.log",
        )
        try:
            eventually("Prometheus is ready", self._ready, seconds=20)
        except BaseException:
            self.process.stop()
            raise

    def _ready(self) -> bool:
        assert self.process.alive(), self.process.output()[-2000:]
        with suppress(OSError, http.client.HTTPException):
            return self._get("/-/ready")[0] == http.client.OK
        return False

    def _get(self, path: str, **parameters: object) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit(10))
        try:
            connection.request("GET", f"{path}?{urlencode(parameters, doseq=True)}")
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, path: str, **parameters: object) -> Any:
        """Return the data of an answer of the HTTP API. AssertionError with Prometheus' message if it refuses."""
        status, body = self._get(f"/api/v1/{path}", **parameters)
        assert status == http.client.OK, body.decode()
        return json.loads(body)["data"]

    def values(self, expr: str) -> list[float]:
        """Return the present value of each series of a query."""
        return [float(each["value"][1]) for each in self.ask("query", query=expr)["result"]]

    def values_since(self, expr: str, start: float, end: float) -> list[list[float]]:
        """Return the values of each series of a query from `start` to `end`, in seconds since 1970."""
        found = self.ask("query_range", query=expr, start=start, end=end, step=SCRAPE)["result"]
        return [[float(value) for _, value in each["values"]] for each in found]

    def label_values(self, metric: str, label: str) -> list[str]:
        """Return the values that a label of a metric has."""
        found: list[str] = self.ask(f"label/{label}/values", **{"match[]": metric})
        return found

    def scraped_since(self, moment: float) -> bool:
        """Return whether each target has been scraped, and has answered, after `moment`, in seconds since 1970."""
        return self.values("min(up)") == [1] and self.values("min(timestamp(up))")[0] > moment

    def stop(self) -> None:
        """End it."""
        self.process.stop()
