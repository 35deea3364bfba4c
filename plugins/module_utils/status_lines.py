"""Writes the lines of `make status` from what cluster_status has read; reads nothing itself."""

from __future__ import annotations

from datetime import datetime
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = dict[str, Any]

OBSERVER: Final = "agentaflow.gpu/observer"
DEVICES: Final = "agentaflow.gpu/assigned-devices"
ENABLED: Final = "agentaflow.gpu/enabled"
VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
SCHEDULER: Final = "gpu-scheduler"
COMPONENTS: Final = {
    "scheduler": "gpu-scheduler",
    "webhook": "gpu-scheduler-webhook",
    "controller": "gpu-scheduler-controller",
}
# Components whose replicas elect a leader; the Lease has the Deployment's name.
LED: Final = ("scheduler", "controller")
# A Lease that was not renewed for this time has expired.
LEASE_SECONDS: Final = 15
# One screen of 100 columns, of which Ansible takes eight.
MOST_PODS: Final = 24
WIDTH: Final = 91
INDENT: Final = " " * 13


def table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """The rows as lines of aligned columns."""
    lines = list(rows)
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def ago(since: datetime, now: datetime) -> str:
    """How long ago, in the largest unit that is not zero."""
    seconds = int((now - since).total_seconds())
    for unit, size in (("days", 2 * 86400), ("h", 2 * 3600), ("min", 120)):
        if seconds >= size:
            return f"{seconds // (size // 2)} {unit}"
    return f"{seconds} s"


def condition(item: Json, kind: str) -> Json:
    """The object's condition of that kind; empty where it has none."""
    found: Iterable[Json] = item.get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})


def devices(pod: Json) -> str:
    """Return a pod's devices: the annotation of its Binding, else the variable of its first container."""
    variables = pod["spec"]["containers"][0].get("env", [])
    literal = next((each.get("value", "") for each in variables if each["name"] == VARIABLE), "")
    return str(pod["metadata"].get("annotations", {}).get(DEVICES, literal))


def holds(pod: Json) -> bool:
    """Whether a pod holds its devices: bound, not finished, no observer."""
    observes = pod["metadata"].get("annotations", {}).get(OBSERVER) == "true"
    finished = pod["status"].get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not finished and not observes


def state(pod: Json) -> str:
    """Return a pod's phase and conditions, and why it waits if it does."""
    phase = str(pod["status"].get("phase", "Unknown"))
    if "deletionTimestamp" in pod["metadata"]:
        return f"Terminating since {pod['metadata']['deletionTimestamp']}"
    if not pod["spec"].get("nodeName"):
        return str(condition(pod, "PodScheduled").get("message") or f"{phase}: not tried yet")
    statuses = pod["status"].get("containerStatuses", [])
    waiting = [each["state"]["waiting"].get("reason", "") for each in statuses if "waiting" in each.get("state", {})]
    not_ready = phase == "Running" and condition(pod, "Ready").get("status") != "True"
    observes = pod["metadata"].get("annotations", {}).get(OBSERVER) == "true"
    words = [phase, *waiting, *["not ready"] * (not_ready and not waiting), *["observes"] * observes]
    return ", ".join(filter(None, words))


def node_rows(nodes: list[Json], pods: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yield each node, its state, and its held GPUs."""
    yield "NODE", "STATE", "VERSION", "GPUS HELD"
    for node in nodes:
        name = node["metadata"]["name"]
        ready = "Ready" if condition(node, "Ready").get("status") == "True" else "NotReady"
        cordoned = ", cordoned" if node["spec"].get("unschedulable") else ""
        on_it = [devices(pod).split(",") for pod in pods if holds(pod) and pod["spec"]["nodeName"] == name]
        held = sorted({each for some in on_it for each in some if each}, key=lambda each: (len(each), each))
        yield name, ready + cordoned, node["status"]["nodeInfo"]["kubeletVersion"], ",".join(held) or "-"


def leader(leases: list[Json], name: str, now: datetime) -> tuple[str, str]:
    """Return the pod that holds the Lease of that name, and for how long; empty if the Lease has expired."""
    held = [lease["spec"] for lease in leases if lease["metadata"]["name"] == name]
    if not held or not held[0].get("holderIdentity") or not held[0].get("renewTime"):
        return "", ""
    renewed = datetime.fromisoformat(held[0]["renewTime"])
    if (now - renewed).total_seconds() >= LEASE_SECONDS:
        return "", ""
    return held[0]["holderIdentity"].rpartition("_")[0], ago(datetime.fromisoformat(held[0]["acquireTime"]), now)


def image_of(workload: Json) -> str:
    """The image that a Deployment or a DaemonSet runs, without its registry."""
    return str(workload["spec"]["template"]["spec"]["containers"][0]["image"].rpartition("/")[2])


def component_rows(
    system: list[Json], remedy: str, now: datetime, *, webhook: bool = True
) -> Iterator[tuple[str, ...]]:
    """Yield each component: replicas, image, nodes and leader; leave the webhook out unless it injects."""
    yield "COMPONENT", "READY", "IMAGE", "RUNS ON"
    of_kind = {kind: [each for each in system if each["kind"] == kind] for kind in ("Deployment", "Pod", "Lease")}
    for component, name in COMPONENTS.items():
        if component == "webhook" and not webhook:
            continue
        found = [each for each in of_kind["Deployment"] if each["metadata"]["name"] == name]
        if not found:
            yield component, "none", "-", f"not installed: {remedy} installs it"
            continue
        labels = found[0]["spec"]["selector"]["matchLabels"].items()
        ours = [pod for pod in of_kind["Pod"] if labels <= pod["metadata"].get("labels", {}).items()]
        first, since = leader(of_kind["Lease"], name, now) if component in LED else ("", "")
        places = [
            pod["spec"].get("nodeName", "no node")
            + (f" (leads for {since})" if pod["metadata"]["name"] == first else "")
            for pod in ours
        ]
        nobody = ["nobody leads"] if component in LED and not first else []
        ready = f"{found[0]['status'].get('readyReplicas', 0)}/{found[0]['spec']['replicas']}"
        yield component, ready, image_of(found[0]), ", ".join([*sorted(places), *nobody])


def monitor_rows(monitors: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yield how many monitors are ready, and of how many; without monitors nothing."""
    for monitor in monitors:
        status = monitor["status"]
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
        yield "monitor", f"{ready}/{wanted}", image_of(monitor), f"where {ENABLED}=true"


def pod_rows(pods: list[Json]) -> Iterator[tuple[str, ...]]:
    """Yield our pods, those that wait first."""
    yield "POD", "NODE", "GPUS", "STATE"

    def order(pod: Json) -> tuple[bool, str, str]:
        return "nodeName" in pod["spec"], pod["metadata"]["namespace"], pod["metadata"]["name"]

    for pod in sorted(pods, key=order)[:MOST_PODS]:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        yield name, pod["spec"].get("nodeName", "-"), devices(pod) or "-", state(pod)


def conflict_lines(notes: list[str], pods: list[Json]) -> Iterator[str]:
    """Yield each conflict of which both pods still hold the GPU: the event outlives the conflict."""
    holders = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods if holds(pod)}
    # Both pods have an event, with the same words in another order.
    conflicts = {
        tuple(sorted(words)): note
        for note in sorted(notes, reverse=True)
        if len(holders & set(words := note.split())) > 1
    }
    for note in conflicts.values():
        yield from wrap(note, WIDTH, initial_indent="Conflict     ", subsequent_indent=INDENT)


def certificate_line(certificate: bytes, registrations: int, remedy: str, now: datetime) -> str:
    """Return how long the webhook's certificate lasts, and whether the webhook is registered."""
    # Imported here, so that the module loads without the library and can report that it is missing.
    from cryptography import x509  # noqa: PLC0415

    if not certificate:
        return f"Certificate  none: {remedy} issues it"
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    days = (end - now).days
    left = f"{days} days left, until {end:%Y-%m-%d}" if end > now else f"ended {end:%Y-%m-%d}: {remedy} renews it"
    asked = (
        "" if registrations == len(("mutating", "validating")) else f"; the webhook is not registered: {remedy} does"
    )
    return f"Certificate  {left}{asked}"


def cluster_lines(found: Json, remedy: str, now: datetime, *, webhook: bool = True) -> Iterator[str]:
    """Yield all lines about the cluster; without a `webhook` the API server injects by a policy."""
    if webhook:
        yield certificate_line(found["certificate"], found["registrations"], remedy, now)
    else:
        yield "Injection    by the API server's own policy"
    yield ""
    yield from table(node_rows(found["nodes"], found["pods"]))
    yield ""
    components = component_rows(found["system"], remedy, now, webhook=webhook)
    yield from table([*components, *monitor_rows(found["monitors"])])
    yield from conflict_lines(found["conflicts"], found["pods"])
    yield ""
    if not found["pods"]:
        yield f"No pod has schedulerName {SCHEDULER}."
        return
    yield from table(pod_rows(found["pods"]))
    if len(found["pods"]) > MOST_PODS:
        more = f"--field-selector=spec.schedulerName={SCHEDULER}"
        yield f"… and {len(found['pods']) - MOST_PODS} more: kubectl get pods --all-namespaces {more}"
