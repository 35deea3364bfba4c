"""Reports the engine, the cluster, our components, the certificate and the pods as one text for a terminal.

What is missing has a line too, with the command that makes it. Everything is read in parallel and nothing is changed.
module_utils/status_lines.py writes the text, so it is tested without a cluster. Not k8s_info of kubernetes.core: it
fails if the API server does not answer, and seven reads in a loop take seconds.
"""

from __future__ import annotations

import base64
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.status_lines import (  # type: ignore[import-untyped]  # ours: ansible.cfg says where
    COMPONENTS,
    INDENT,
    SCHEDULER,
    WIDTH,
    cluster_lines,
)

DOCUMENTATION = """
module: cluster_status
short_description: the state of gpu-scheduler in a cluster, as text
description:
  - Reads the engine, the cluster and what is installed in it. It fails for nothing that is missing.
options:
  kind_cluster: {description: The name of the kind cluster; empty if it is no kind cluster., type: str, default: ""}
  kubectl: {description: "The kubectl command, program and options.", required: true, type: list, elements: str}
  namespace: {description: Where scheduler and webhook are., required: true, type: str}
  injection: {description: Who writes the variables., choices: [webhook, policy], type: str, default: webhook}
  remedy: {description: The command that makes what is missing., type: str, default: make up}
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Read the state of engine, cluster, components and pods
  cluster_status:
    kubectl: [kubectl]
    namespace: gpu-scheduler-system
"""

RETURN = """
text: {description: the report, in lines without trailing blanks, type: str}
"""

Json = dict[str, Any]

CONFLICT: Final = "GpuConflict"
MONITORS: Final = "app.kubernetes.io/name=gpu-scheduler,app.kubernetes.io/component=monitor"
TIMEOUT: Final = 8


class UnavailableError(Exception):
    """A program that failed or does not answer; the text is its error in one line."""


def output_of(*command: str) -> str:
    """Return the command's output; raise UnavailableError if it failed."""
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


def engine(cluster: str, remedy: str) -> tuple[bool, list[str]]:
    """Return whether a node of the cluster runs, and the lines about the engine and the nodes' containers."""
    try:
        version = output_of("docker", "version", "--format", "{{.Server.Version}}")
        label = f"label=io.x-k8s.kind.cluster={cluster}"
        found = output_of("docker", "ps", "--all", "--filter", label, "--format", "{{.State}}").splitlines()
    except UnavailableError as error:
        return False, [f"Engine       none answers: {remedy} starts it", f"{INDENT}{error}"]
    lines, running = [f"Engine       Docker {version}"], found.count("running")
    if not found:
        lines.append(f"Cluster      {cluster} does not exist: {remedy} creates it")
    elif running < len(found):
        lines.append(f"Nodes        {running} of {len(found)} run: {remedy} starts the others")
    return running > 0, lines


def items(answer: str) -> list[Json]:
    """Return the objects of kubectl's answer, which is empty if there are none."""
    found: list[Json] = json.loads(answer)["items"] if answer else []
    return found


def read(kubectl: list[str], namespace: str) -> Json:
    """Read nodes, our namespace, monitors, our pods, conflicts, the certificate and the webhook's registrations."""
    everywhere = ("--all-namespaces", f"--field-selector=spec.schedulerName={SCHEDULER}", "--output=json")
    conflicts = ("--all-namespaces", f"--field-selector=reason={CONFLICT}", "--output=json")
    webhook = COMPONENTS["webhook"]
    queries = {
        "nodes": ("nodes", "--output=json"),
        "system": ("deployments,pods,leases", f"--namespace={namespace}", "--output=json"),
        "monitors": ("daemonsets", "--all-namespaces", f"--selector={MONITORS}", "--output=json"),
        "pods": ("pods", *everywhere),
        "conflicts": ("events.events.k8s.io", *conflicts),
        "certificate": ("secret", f"{webhook}-tls", f"--namespace={namespace}", "--output=jsonpath={.data.tls\\.crt}"),
        "registrations": ("mutatingwebhookconfigurations,validatingwebhookconfigurations", webhook, "--output=name"),
    }
    with ThreadPoolExecutor(len(queries)) as pool:
        asked = {
            key: pool.submit(
                output_of, *kubectl, "get", *words, "--ignore-not-found", f"--request-timeout={TIMEOUT - 2}s"
            )
            for key, words in queries.items()
        }
        answers = {key: answer.result() for key, answer in asked.items()}
    return {
        **{key: items(answers[key]) for key in ("nodes", "system", "monitors", "pods")},
        "conflicts": [event["note"] for event in items(answers["conflicts"])],
        "certificate": base64.b64decode(answers["certificate"]),
        "registrations": len(answers["registrations"].split()),
    }


def screen(asked: Json, now: datetime) -> str:
    """Return the whole text, each line cut to the width, but for those that name the remedy."""
    kubectl, remedy, webhook = asked["kubectl"], asked["remedy"], asked["injection"] == "webhook"
    context = next((word.removeprefix("--context=") for word in kubectl if word.startswith("--context=")), "")
    stands, lines = engine(asked["kind_cluster"], remedy) if asked["kind_cluster"] else (True, [])
    if not context:
        lines += [
            "Cluster      kube_context names none, and the current one is never taken by chance:",
            f"{INDENT}{remedy}",
        ]
    elif stands:
        try:
            found = read(kubectl, asked["namespace"])
        except UnavailableError as error:
            variables = "kubectl_program" if str(error).startswith("cannot run") else "kubeconfig and kube_context"
            advice = remedy if asked["kind_cluster"] else f"check {variables}"
            lines += [f"Cluster      {context} does not answer: {advice}", f"{INDENT}{error}"]
        else:
            lines += [f"Cluster      {context}", *cluster_lines(found, remedy, now, webhook=webhook)]
    return "\n".join(
        line if len(line) <= WIDTH or remedy in line else f"{line[: WIDTH - 1].rstrip()}…" for line in lines
    )


def main() -> None:
    """Return the text to Ansible."""
    module = AnsibleModule(
        argument_spec={
            "kind_cluster": {"type": "str", "default": ""},
            "kubectl": {"type": "list", "elements": "str", "required": True},
            "namespace": {"type": "str", "required": True},
            "injection": {"type": "str", "choices": ["webhook", "policy"], "default": "webhook"},
            "remedy": {"type": "str", "default": "make up"},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, text=screen(module.params, datetime.now(UTC)))


if __name__ == "__main__":
    main()
