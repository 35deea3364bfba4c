"""Says what runs where: engine, cluster, our components, certificate and pods, as one text for a terminal.

What is missing is a line too, with the command that cures it. Everything is read in parallel and nothing is changed;
reading and telling stand apart, so that the text can be tested without a cluster.
"""

from __future__ import annotations

import base64
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOCUMENTATION = """
module: cluster_status
short_description: what of gpu-scheduler runs where, as text
description:
  - Reads the engine, the cluster and what is installed in it. It fails for nothing that is missing.
options:
  kind_cluster: {description: The kind cluster to look for; empty where it is none of kind's., type: str, default: ""}
  kubectl: {description: "The kubectl command, program and options.", required: true, type: list, elements: str}
  namespace: {description: Where scheduler and webhook are., required: true, type: str}
  scheduler_name: {description: The schedulerName of our pods., type: str, default: gpu-scheduler}
  cure: {description: The command that makes what is missing., type: str, default: make up}
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Look around
  cluster_status:
    kubectl: [kubectl]
    namespace: gpu-scheduler-system
"""

RETURN = """
text: {description: what there is to say, in lines without trailing blanks, type: str}
"""

Json = dict[str, Any]

OBSERVER: Final = "agentaflow.gpu/observer"
DEVICES: Final = "agentaflow.gpu/assigned-devices"
VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
COMPONENTS: Final = {"scheduler": "gpu-scheduler", "webhook": "gpu-scheduler-webhook"}
# A Lease that nobody has renewed for so many seconds has no holder any more.
LEASE_SECONDS: Final = 15
# One screen of 100 columns, of which Ansible takes eight.
MOST_PODS: Final = 24
WIDTH: Final = 91
INDENT: Final = " " * 13
TIMEOUT: Final = 8


class UnavailableError(Exception):
    """A program that could not be asked; its text is what it complained of, in one line."""


def said(*command: str) -> str:
    """What a command printed; raises UnavailableError where it failed."""
    try:
        done = subprocess.run(  # noqa: S603 - the commands are kubectl's and docker's
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"no answer in {TIMEOUT} s") from None
    except OSError as error:
        raise UnavailableError(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode:
        complaint = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise UnavailableError(complaint[-1])
    return done.stdout.strip()


def engine(cluster: str, cure: str) -> tuple[bool, list[str]]:
    """Whether there is a cluster to ask, and what there is to say of the engine and of its nodes' containers."""
    try:
        version = said("docker", "version", "--format", "{{.Server.Version}}")
        label = f"label=io.x-k8s.kind.cluster={cluster}"
        found = said("docker", "ps", "--all", "--filter", label, "--format", "{{.State}}").splitlines()
    except UnavailableError as error:
        return False, [f"Engine       none answers: {cure} starts it", f"{INDENT}{error}"]
    lines, running = [f"Engine       Docker {version}"], found.count("running")
    if not found:
        lines.append(f"Cluster      {cluster} does not exist: {cure} creates it")
    elif running < len(found):
        lines.append(f"Nodes        {running} of {len(found)} run: {cure} starts the others")
    return running > 0, lines


def read(kubectl: list[str], namespace: str, scheduler: str) -> Json:
    """What the cluster tells: nodes, what is in our namespace, our pods, certificate and registrations."""
    everywhere = ("--all-namespaces", f"--field-selector=spec.schedulerName={scheduler}", "--output=json")
    webhook = COMPONENTS["webhook"]
    questions = {
        "nodes": ("nodes", "--output=json"),
        "system": ("deployments,pods,leases", f"--namespace={namespace}", "--output=json"),
        "pods": ("pods", *everywhere),
        "certificate": ("secret", f"{webhook}-tls", f"--namespace={namespace}", "--output=jsonpath={.data.tls\\.crt}"),
        "registrations": ("mutatingwebhookconfigurations,validatingwebhookconfigurations", webhook, "--output=name"),
    }
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = {
            key: pool.submit(said, *kubectl, "get", *words, "--ignore-not-found", f"--request-timeout={TIMEOUT - 2}s")
            for key, words in questions.items()
        }
        answers = {key: answer.result() for key, answer in asked.items()}
    return {
        "nodes": json.loads(answers["nodes"])["items"],
        "system": json.loads(answers["system"] or '{"items": []}')["items"],
        "pods": json.loads(answers["pods"] or '{"items": []}')["items"],
        "certificate": base64.b64decode(answers["certificate"]),
        "registrations": len(answers["registrations"].split()),
    }


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
    """The devices that a pod sees, as its Binding says, else as its containers were told."""
    variables = pod["spec"]["containers"][0].get("env", [])
    literal = next((each.get("value", "") for each in variables if each["name"] == VARIABLE), "")
    return str(pod["metadata"].get("annotations", {}).get(DEVICES, literal))


def holds(pod: Json) -> bool:
    """Whether a pod holds its devices: bound, not finished, no observer."""
    observes = pod["metadata"].get("annotations", {}).get(OBSERVER) == "true"
    finished = pod["status"].get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not finished and not observes


def state(pod: Json) -> str:
    """How a pod is, and why it waits where it does."""
    phase = str(pod["status"].get("phase", "Unknown"))
    if "deletionTimestamp" in pod["metadata"]:
        return f"Terminating since {pod['metadata']['deletionTimestamp']}"
    if not pod["spec"].get("nodeName"):
        return str(condition(pod, "PodScheduled").get("message") or f"{phase}: not looked at yet")
    statuses = pod["status"].get("containerStatuses", [])
    waiting = [each["state"]["waiting"].get("reason", "") for each in statuses if "waiting" in each.get("state", {})]
    not_ready = phase == "Running" and condition(pod, "Ready").get("status") != "True"
    observes = pod["metadata"].get("annotations", {}).get(OBSERVER) == "true"
    words = [phase, *waiting, *["not ready"] * (not_ready and not waiting), *["observes"] * observes]
    return ", ".join(filter(None, words))


def node_rows(nodes: list[Json], pods: list[Json]) -> Iterator[tuple[str, ...]]:
    """Each node, how it is, and which of its GPUs are held."""
    yield "NODE", "STATE", "VERSION", "GPUS HELD"
    for node in nodes:
        name = node["metadata"]["name"]
        ready = "Ready" if condition(node, "Ready").get("status") == "True" else "NotReady"
        cordoned = ", cordoned" if node["spec"].get("unschedulable") else ""
        on_it = [devices(pod).split(",") for pod in pods if holds(pod) and pod["spec"]["nodeName"] == name]
        held = sorted({each for some in on_it for each in some if each}, key=lambda each: (len(each), each))
        yield name, ready + cordoned, node["status"]["nodeInfo"]["kubeletVersion"], ",".join(held) or "-"


def component_rows(system: list[Json], cure: str, now: datetime) -> Iterator[tuple[str, ...]]:
    """Each component: replicas, image, the nodes they run on, and who leads."""
    yield "COMPONENT", "READY", "IMAGE", "RUNS ON"
    of_kind = {kind: [each for each in system if each["kind"] == kind] for kind in ("Deployment", "Pod", "Lease")}
    leases = [each["spec"] for each in of_kind["Lease"] if each["metadata"]["name"] == COMPONENTS["scheduler"]]
    lease = leases[0] if leases and leases[0].get("holderIdentity") and leases[0].get("renewTime") else {}
    lives = bool(lease) and (now - datetime.fromisoformat(lease["renewTime"])).total_seconds() < LEASE_SECONDS
    leader = lease["holderIdentity"].rpartition("_")[0] if lives else ""
    for component, name in COMPONENTS.items():
        found = [each for each in of_kind["Deployment"] if each["metadata"]["name"] == name]
        if not found:
            yield component, "none", "-", f"not installed: {cure} installs it"
            continue
        labels = found[0]["spec"]["selector"]["matchLabels"].items()
        ours = [pod for pod in of_kind["Pod"] if labels <= pod["metadata"].get("labels", {}).items()]
        places = [
            pod["spec"].get("nodeName", "no node")
            + (
                f" (leads for {ago(datetime.fromisoformat(lease['acquireTime']), now)})"
                if pod["metadata"]["name"] == leader
                else ""
            )
            for pod in ours
        ]
        nobody = ["nobody leads"] if component == "scheduler" and not leader else []
        ready = f"{found[0]['status'].get('readyReplicas', 0)}/{found[0]['spec']['replicas']}"
        image = found[0]["spec"]["template"]["spec"]["containers"][0]["image"].rpartition("/")[2]
        yield component, ready, image, ", ".join([*sorted(places), *nobody])


def pod_rows(pods: list[Json]) -> Iterator[tuple[str, ...]]:
    """Our pods, those that wait first."""
    yield "POD", "NODE", "GPUS", "STATE"

    def order(pod: Json) -> tuple[bool, str, str]:
        return "nodeName" in pod["spec"], pod["metadata"]["namespace"], pod["metadata"]["name"]

    for pod in sorted(pods, key=order)[:MOST_PODS]:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        yield name, pod["spec"].get("nodeName", "-"), devices(pod) or "-", state(pod)


def certificate_line(certificate: bytes, registrations: int, cure: str, now: datetime) -> str:
    """How long the webhook's certificate lasts, and whether the API server asks the webhook at all."""
    # Here, because the module must load where the library is missing, to say so.
    from cryptography import x509  # noqa: PLC0415

    if not certificate:
        return f"Certificate  none: {cure} issues it"
    end = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    days = (end - now).days
    left = f"{days} days left, until {end:%Y-%m-%d}" if end > now else f"ended {end:%Y-%m-%d}: {cure} renews it"
    asked = "" if registrations == len(("mutating", "validating")) else f"; the webhook is not registered: {cure} does"
    return f"Certificate  {left}{asked}"


def cluster_lines(found: Json, cure: str, scheduler: str, now: datetime) -> Iterator[str]:
    """Everything that the cluster tells."""
    yield certificate_line(found["certificate"], found["registrations"], cure, now)
    yield ""
    yield from table(node_rows(found["nodes"], found["pods"]))
    yield ""
    yield from table(component_rows(found["system"], cure, now))
    yield ""
    if not found["pods"]:
        yield f"No pod has schedulerName {scheduler}."
        return
    yield from table(pod_rows(found["pods"]))
    if len(found["pods"]) > MOST_PODS:
        more = f"--field-selector=spec.schedulerName={scheduler}"
        yield f"… and {len(found['pods']) - MOST_PODS} more: kubectl get pods --all-namespaces {more}"


def screen(asked: Json, now: datetime) -> str:
    """The whole text, each line cut to the width."""
    kubectl, cure, scheduler = asked["kubectl"], asked["cure"], asked["scheduler_name"]
    context = next((word.removeprefix("--context=") for word in kubectl if word.startswith("--context=")), "")
    stands, lines = engine(asked["kind_cluster"], cure) if asked["kind_cluster"] else (True, [])
    if not context:
        lines += [
            "Cluster      kube_context names none, and the current one is never taken by chance:",
            f"{INDENT}{cure}",
        ]
    elif stands:
        try:
            found = read(kubectl, asked["namespace"], scheduler)
        except UnavailableError as error:
            advice = cure if asked["kind_cluster"] else "check kubeconfig and kube_context"
            lines += [f"Cluster      {context} does not answer: {advice}", f"{INDENT}{error}"]
        else:
            lines += [f"Cluster      {context}", *cluster_lines(found, cure, scheduler, now)]
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 1].rstrip()}…" for line in lines)


def main() -> None:
    """Look, and tell Ansible."""
    module = AnsibleModule(
        argument_spec={
            "kind_cluster": {"type": "str", "default": ""},
            "kubectl": {"type": "list", "elements": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "scheduler_name": {"type": "str", "default": "gpu-scheduler"},
            "cure": {"type": "str", "default": "make up"},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, text=screen(module.params, datetime.now(UTC)))


if __name__ == "__main__":
    main()
