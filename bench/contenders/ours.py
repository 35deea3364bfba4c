"""O: our scheduler as its role runs it, with the role's own arguments and environment, plus address and credentials.

It is a synced standby while another holds the Lease; the clock starts when that one gives it up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from bench.costs import Meter
from gpu_scheduler.adapters.leadership import GIVEN_UP
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import LEASE, Command
from tests.integration.shipped import ROLES, rendered

if TYPE_CHECKING:
    from bench.plant import Plant
    from bench.results import Cost
    from bench.town import Town

_HOLDER: Final = "benchmark"
_NAME: Final = "gpu-scheduler-0"


def as_shipped() -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the role's Deployment, with the role's defaults."""
    defaults = yaml.safe_load((ROLES / "scheduler" / "defaults" / "main.yml").read_text(encoding="utf-8"))
    values = {**defaults, "_scheduler_labels": {}, "_scheduler_selector": {}}
    (body,) = rendered("scheduler", "deployment", values)
    (container,) = body["spec"]["template"]["spec"]["containers"]
    # What the pod itself is asked for is the same for every installation: where it runs, and its name.
    told = {"metadata.namespace": SYSTEM_NAMESPACE, "metadata.name": _NAME}
    env = {
        each["name"]: each["value"] if "value" in each else told[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    return container["args"], env


class Ours:
    """One replica."""

    name = "O"
    scheduler = "gpu-scheduler"
    pinned = False
    events = True
    devices = True

    def prepare(self, plant: Plant, town: Town) -> None:
        """See Contender."""
        del town
        self._kube = plant.plane.kube
        self._kube.create(LEASE.rpartition("/")[0], _lease())
        token = plant.plane.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler")
        kubeconfig = plant.plane.kubeconfig(plant.folder / "ours.kubeconfig", token)
        arguments, env = as_shipped()
        self.command = Command(plant.folder, _NAME, [*arguments, "--kubeconfig", str(kubeconfig)], env)
        self.command.wait_ready()

    def go(self) -> None:
        """See Contender."""
        self._meter = Meter(self.command.process.pid)
        # As who gives it up writes it; anything else is waited out.
        self._kube.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": GIVEN_UP}})

    def cost(self) -> Cost:
        """See Contender."""
        return self._meter.read()

    def stop(self) -> None:
        """See Contender."""
        self.command.process.stop()


def _lease() -> dict[str, Any]:
    """Held by somebody who will not come back, for longer than any preparation takes."""
    spec = {"holderIdentity": _HOLDER, "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"metadata": {"name": LEASE.rpartition("/")[2], "namespace": SYSTEM_NAMESPACE}, "spec": spec}
