"""`plan` says first what the scheduler then decides, pod by pod, for random clusters and manifests.

The environment variables PLANS and SEED set the number of cases and the seed. A failure names the seed and the case.
Suite sweeps runs 300 cases.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration import limits
from tests.integration.command import start_alone
from tests.integration.namespace import SYSTEM_NAMESPACE, Namespace
from tests.integration.role_manifests import control_plane
from tests.oracle.random_plans import STRATEGIES, RandomCase
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.installed import Installed
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object
    from tests.oracle.random_plans import PlannedObject

    Decision = tuple[str, ...]
    """Node, devices and index, or a message alone."""

PLANS: Final = int(os.environ.get("PLANS", "15"))
SEED: Final = int(os.environ.get("SEED", "1"))
SHARINGS: Final = ("same-workload", "any", "none")
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{SYSTEM_NAMESPACE}/deployments"
SETTINGS: Final = f"{limits.CONFIG_MAPS}/gpu-scheduler-settings"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: no pod of another test may hold a device."""
    plane = control_plane(tmp_path_factory.mktemp("plane"))
    yield plane
    plane.stop()


class Case:
    """A namespace with the pods of a random case, the plan, and what the scheduler then decides."""

    def __init__(self, plane: ControlPlane, scheduler: Command, dice: random.Random, name: str) -> None:
        """Create the namespace, its storage class and the nodes."""
        self._kube = plane.kube
        self._scheduler = scheduler
        self._dice = dice
        self.namespace = Namespace(plane.kube, name)
        self.namespace.storage("WaitForFirstConsumer")
        self.random = RandomCase(dice, name)
        for node in self.random.nodes():
            self.namespace.add(node)
        self.pods = self.random.existing()
        self.configure(dice.choice(STRATEGIES), self.random.limits(name))

    def configure(self, strategy: str, text: str) -> None:
        """Write the settings, and wait until the scheduler has applied them."""
        known = self._scheduler.count(limits.CHANGED)
        before = (self._kube.get(limits.LIMITS) or {}).get("data", {}).get("limits", "")
        self._kube.call("DELETE", SETTINGS)
        settings = {"metadata": {"name": "gpu-scheduler-settings"}, "data": {"strategy": strategy}}
        self._kube.create(limits.CONFIG_MAPS, settings)
        limits.write(self._kube, text)
        wanted = f'gpu_scheduler_strategy{{strategy="{strategy}"}}'
        eventually("the strategy applies", lambda: self._scheduler.metric(wanted) == 1, pause=0.02)
        if text.strip() != before.strip():
            eventually("the limits apply", lambda: self._scheduler.count(limits.CHANGED) > known, pause=0.02)

    def populate(self) -> list[Object]:
        """Create the existing pods one after the other, then end some. Return those that were admitted."""
        created = [pod for pod in self.pods if not self.create(pod)]
        for pod in created:
            if pod["spec"]["schedulerName"] == "gpu-scheduler":
                self.decided(pod["metadata"]["name"])
        for pod in self._dice.sample(created, min(len(created), self._dice.randrange(2))):
            name = pod["metadata"]["name"]
            change = self._dice.choice((self.namespace.delete, self.namespace.finish, self._terminate))
            if self.namespace.node_of(name):
                change(name)
        return created

    def _terminate(self, name: str) -> None:
        self._kube.call("DELETE", f"{self.namespace.pods}/{name}", {"gracePeriodSeconds": 30})

    def create(self, pod: Object) -> str:
        """Create a pod. Return the message of the webhook if it refuses the pod, else an empty text."""
        status, answer = self._kube.call("POST", self.namespace.pods, pod)
        if status == 201:
            return ""
        _, denied, message = answer["message"].partition("denied the request: ")
        assert denied, answer
        return str(message)

    def runs(self, name: str) -> bool:
        """Return whether there is a pod of this name with a node."""
        pod = self._kube.get(f"{self.namespace.pods}/{name}")
        return pod is not None and "nodeName" in pod["spec"]

    def stays(self, name: str) -> bool:
        """Return whether there is a pod of this name that its controller keeps."""
        pod = self._kube.get(f"{self.namespace.pods}/{name}")
        return pod is not None and not (
            "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] in {"Succeeded", "Failed"}
        )

    def placed(self, name: str) -> Decision:
        """Wait until the pod has a node. Return its placement."""
        eventually(f"{name} is placed", lambda: self.namespace.node_of(name), seconds=20, pause=0.02)
        return self.decided(name)

    def decided(self, name: str) -> Decision:
        """Wait for the decision on a pod. Return node, devices and index, or the message of its condition."""

        def decision() -> Decision:
            found = self.namespace.read(name)
            node = found["spec"].get("nodeName")
            if node:
                notes = found["metadata"]["annotations"]
                return (
                    node,
                    notes["agentaflow.gpu/assigned-devices"],
                    notes.get("agentaflow.gpu/assigned-index", "None"),
                )
            conditions = found.get("status", {}).get("conditions", [])
            return next(((each["message"],) for each in conditions if each["type"] == "PodScheduled"), ())

        return eventually(f"{name} is decided", decision, pause=0.02)

    def clear(self) -> None:
        """Delete everything of the case, and wait until the scheduler holds nothing."""
        self.namespace.clear()
        for path in (self.namespace.claims, "/api/v1/persistentvolumes"):
            self._kube.call("DELETE", path)

        def empty() -> bool:
            return not json.loads(self._scheduler.ask("/debug/ledger")[1])["holders"]

        eventually("nothing is held", empty, pause=0.02)


@pytest.mark.timeout(3600)
@pytest.mark.promise("plan-1")
@pytest.mark.parametrize("sharing", SHARINGS)
def test_the_scheduler_decides_as_planned(
    plane: ControlPlane, registered: RegisteredWebhook, operator: Installed, tmp_path: Path, sharing: str
) -> None:
    """Node, devices and index of each pod, or the whole message."""
    place = SHARINGS.index(sharing)
    configure_sharing(plane, sharing)
    scheduler = start_alone(plane, tmp_path, f"plan-{sharing}", GPU_SHARING=sharing, DEBUG_ENDPOINTS="true")
    differences: list[str] = []
    began, seen = time.monotonic(), Counter[str]()
    try:
        scheduler.wait_ready()
        eventually("it leads", scheduler.leads)
        for number in range(place, PLANS, len(SHARINGS)):
            dice = random.Random(f"{SEED}/{number}")  # noqa: S311 - it must be repeatable, not secret
            case = Case(plane, scheduler, dice, f"plan-{SEED}-{number}")
            try:
                seen.update(compare(case, operator, tmp_path))
            except AssertionError as error:
                differences.append(f"SEED={SEED}, case {number}: {error}")
            finally:
                case.clear()
    finally:
        scheduler.process.stop()
    print(f"SEED={SEED}, {sharing}: {dict(seen.most_common())} in {time.monotonic() - began:.0f} s")  # noqa: T201
    assert not differences, "\n\n".join(differences)
    assert seen["fits"] > 0
    assert len(seen) > 3, "the cases have too few reasons to compare"


def configure_sharing(plane: ControlPlane, sharing: str) -> None:
    """Write the Deployment from which the command line reads the scheduler's policy."""
    container = {"name": "scheduler", "image": "none", "env": [{"name": "GPU_SHARING", "value": sharing}]}
    labels = {"app": "gpu-scheduler"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    plane.kube.delete(f"{DEPLOYMENT}/gpu-scheduler")
    plane.kube.create(DEPLOYMENT, {"metadata": {"name": "gpu-scheduler"}, "spec": spec})


def compare(case: Case, operator: Installed, folder: Path) -> list[str]:
    """Plan a random case, let the scheduler decide, and compare. Return the outcomes, or the reasons."""
    created = case.populate()
    planned = case.random.planned()
    again = case.random.again(created)
    if again is not None and case.random.chance(0.3):
        planned.append(again)
    file = folder / "planned.json"
    items = [each.manifest for each in planned]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}), encoding="utf-8")
    words = ["plan", "-f", str(file), "-n", case.namespace.name]
    ours = [pod["metadata"]["name"] for pod in created if pod["spec"]["schedulerName"] == "gpu-scheduler"]
    running = [name for name in ours if case.runs(name)]
    gone = running[0] if running and case.random.chance(0.25) else ""
    settle(operator, folder)
    if gone:
        words += ["--assume-gone", gone]
    plan = planned_by(operator, words)
    if gone:
        case.namespace.delete(gone)
    follow(case, plan["pods"], planned)
    return [pod["reason"] or pod["outcome"] for pod in plan["pods"]]


def settle(operator: Installed, folder: Path) -> None:
    """Wait until no pod waits that could be placed: the events of the last change are handled then."""
    file = folder / "nothing.json"
    file.write_text('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nothing"}}', encoding="utf-8")
    eventually(
        "the scheduler has placed what it can",
        lambda: planned_by(operator, ["plan", "-f", str(file)])["counts"]["placedBefore"] == 0,
        pause=0.05,
    )


def planned_by(operator: Installed, words: list[str]) -> Any:
    """Return the plan of this command line."""
    (plan,) = operator.items(*words, code=None)
    return plan


def follow(case: Case, rows: list[Any], planned: list[PlannedObject]) -> None:
    """Do what the controllers would do, in the order of the plan, and compare each decision with its row."""
    pods = [pod for each in planned for pod in each.pods]
    # A controller makes a pod anew when the one that has ended is gone.
    ended = [name for pod in pods if not case.stays(name := pod["metadata"]["name"])]
    for name in (*ended, *(row["name"] for row in rows if row["outcome"] == "removed")):
        case.namespace.delete(name)
    for row in rows:
        if row["cause"] == "waiting":
            assert case.placed(row["name"]) == placement_of(row), row
    claims = {claim["metadata"]["name"]: claim for each in planned for claim in each.claims}
    asked = [row for row in rows if row["cause"] == "new" and row["outcome"] != "removed"]
    real = {row["name"]: pod["metadata"]["name"] for row, pod in zip(asked, pods, strict=True)}
    for row, pod in zip(asked, pods, strict=True):
        name = pod["metadata"]["name"]
        if case.stays(name):
            # What it waits for is not compared: the scheduler does not write a message anew if only its end changes.
            assert case.namespace.node_of(name) == (row["node"] or ""), row
            continue
        for volume in pod["spec"].get("volumes", ()):
            claim = claims.get(volume["persistentVolumeClaim"]["claimName"])
            if claim is not None:
                case.namespace.kube.create(case.namespace.claims, claim)
        expected = placement_of(row) if row["outcome"] == "fits" else (named(row["message"], real),)
        assert create(case, row, pod) == expected, (row, pod)


def create(case: Case, row: Any, pod: Object) -> Decision:
    """Create a pod, and the volumes that the plan takes as made. Return what is decided on it."""
    denied = case.create(pod)
    if denied:
        return (denied,)
    decision = case.decided(pod["metadata"]["name"])
    if not row["volumes"]:
        return decision
    assert decision[0].startswith("VolumeNotBound: "), (decision, row)
    for claim in row["volumes"]:
        case.namespace.provision(claim)
    return case.placed(pod["metadata"]["name"])


def placement_of(row: Any) -> Decision:
    """Return node, devices and index of a row."""
    return row["node"], ",".join(row["devices"]), str(row["index"])


def named(message: str, real: dict[str, str]) -> str:
    """Return the message with the names that the API server has given the pods."""
    for shown in sorted(real, key=len, reverse=True):
        message = message.replace(shown, real[shown])
    return message
