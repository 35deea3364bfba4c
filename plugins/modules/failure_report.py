"""Fails a task with one report: the objects concerned, why their pods are not ready, their events and logs.

Roles that wait for the cluster use it in their `rescue`. It only reads. Not k8s_info and k8s_log of kubernetes.core:
they fail if the API server does not answer, and a report needs a task for each object, event list and log.
"""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.kubectl import Cluster, ClusterError  # type: ignore[import-untyped]  # ansible.cfg says where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCUMENTATION = """
module: failure_report
short_description: fail with description, events and logs of what is not ready
description:
  - Always fails, with O(failure) and after it, for each subject, a table of its objects, the conditions of pods that
    are not ready, events and the ends of logs.
  - Changes nothing, so it runs in check mode too.
options:
  failure:
    description: The first sentence of the report, what failed and why.
    required: true
    type: str
  kubectl:
    description: The kubectl command, program and options.
    type: list
    elements: str
    default: [kubectl]
  subjects:
    description: The objects to report on.
    required: true
    type: list
    elements: dict
    suboptions:
      namespace:
        description: The namespace of the objects.
        required: true
        type: str
      name:
        description: The name of one pod, which may be deleted; without it kinds and selector choose.
        type: str
        default: ""
      kinds:
        description: Kinds of objects to report, separated by commas.
        type: str
        default: pods
      selector:
        description: Labels of those objects; empty is all of the namespace.
        type: str
        default: ""
      note:
        description: Text that stands before this subject's table.
        type: str
        default: ""
  tail:
    description: How many lines of each log are shown.
    type: int
    default: 30
  timeout:
    description: Seconds for each call of kubectl.
    type: int
    default: 15
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Fail with events and logs
  failure_report:
    failure: "The scheduler is not available: {{ ansible_failed_result.msg }}"
    subjects:
      - {namespace: gpu-scheduler-system, kinds: "deployments,pods", selector: app.kubernetes.io/name=gpu-scheduler}
"""

NO_EVENTS: Final = "none; a cluster keeps them for an hour"
# There are few subjects, and more calls at once do not make a busy API server quicker.
PARALLEL: Final = 4
# Few enough to read, because Ansible prints a failure twice; enough to see a back-off repeat.
MOST_EVENTS: Final = 15
MOST_LOGS: Final = 4
NOT_PULLED: Final = ("ErrImagePull", "ImagePullBackOff")
WRONG_ARCHITECTURE: Final = ("exec format error", "no match for platform", "no matching manifest for")

Json = dict[str, Any]


def is_ready(item: Json) -> bool:
    """Whether the object is no pod, or a pod that is ready or succeeded."""
    status = item.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    return item["kind"] != "Pod" or status.get("phase") == "Succeeded" or conditions.get("Ready") == "True"


def states(status: Json) -> Iterator[str]:
    """Yield the state of each container of a pod, and its last termination."""
    for container in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        for name, state in [*container.get("state", {}).items(), *container.get("lastState", {}).items()]:
            code = f"exit status {state['exitCode']}" if "exitCode" in state else ""
            words = [word for word in (state.get("reason", ""), code, state.get("message", "").strip()) if word]
            yield f"container {container['name']}, {name}: {', '.join(words) or 'since ' + state.get('startedAt', '?')}"


def description(pod: Json) -> str:
    """Return the phase, node, failed conditions and container states of a pod that is not ready."""
    status = pod.get("status", {})
    deletion = pod["metadata"].get("deletionTimestamp")
    deleted = f", being deleted since {deletion}" if deletion else ""
    place = pod.get("spec", {}).get("nodeName", "no node")
    held = [
        each["message"] for each in status.get("conditions", []) if each["status"] != "True" and each.get("message")
    ]
    lines = [
        f"{pod['metadata']['name']}: {status.get('phase', 'no phase')} on {place}{deleted}",
        *held,
        *states(status),
    ]
    return "\n  ".join(dict.fromkeys(lines))


def remedy_of(namespace: str, pods: list[Json], details: str) -> str:
    """Return what to do if images of these pods are not pulled or do not run; empty if that is not the fault.

    `details` are the texts that the report has on them: descriptions, events and logs.
    """
    statuses = [each for pod in pods for each in pod.get("status", {}).get("containerStatuses", [])]
    reasons = {each.get("state", {}).get("waiting", {}).get("reason", "") for each in statuses}
    if any(words in details for words in WRONG_ARCHITECTURE):
        return (
            "The image is of another architecture than the node: build it for the node's, or choose nodes of the"
            " image's (example: pod_options: {node_selector: {kubernetes.io/arch: amd64}})."
        )
    if not reasons & {*NOT_PULLED}:
        return ""
    missing = {name for names in re.findall(r"image pull secrets \(([^)]*)\)", details) for name in names.split(", ")}
    if missing:
        return (
            f"Namespace {namespace} has no Secret {', '.join(sorted(missing))}, which pod_options.image_pull_secrets"
            " names: create it there (kubectl create secret docker-registry), then run the play again."
        )
    return (
        "A node cannot pull an image. Where its registry asks for a login, create a Secret in namespace"
        f" {namespace} (kubectl create secret docker-registry) and name it in pod_options"
        " (example: pod_options: {image_pull_secrets: [registry]})."
    )


def events_of(text: str, objects: list[str]) -> str:
    """Return the heading of `kubectl get events` and its lines about these objects, the newest last."""
    about = re.compile(f" (?:{'|'.join(map(re.escape, objects))})( |$)")
    lines = text.splitlines()
    found = [line for line in lines[1:] if about.search(line)]
    return "\n".join([lines[0], *found[-MOST_EVENTS:]]) if found else NO_EVENTS


def logs_of(run: Callable[..., tuple[str, str]], pods: list[Json], tail: int) -> str:
    """Return the ends of the pods' logs, each line with its pod's and container's name."""
    options = (f"--tail={tail}", "--all-containers", "--prefix", "--ignore-errors")
    logs = [run("logs", pod["metadata"]["name"], *options) for pod in pods[:MOST_LOGS]]
    return "\n".join(text for pair in logs for text in pair if text) or "empty"


def section(title: str, text: str) -> str:
    """Return a title with its text indented below it."""
    return "\n".join([f"{title}:", *(f"  {line}".rstrip() for line in text.splitlines())])


def report_on(cluster: Cluster, subject: dict[str, str], tail: int) -> str:
    """Return the report on one subject, as far as the cluster answers."""

    def run(*words: str) -> tuple[str, str]:
        try:
            output, complaints = cluster.call([*words, f"--namespace={subject['namespace']}"])
        except ClusterError as error:
            return "", str(error)
        return output.strip("\n"), "\n".join(complaints)

    kinds = "pods" if subject["name"] else subject["kinds"]
    title = f"{subject['namespace']}/{subject['name'] or kinds}"
    chosen = [subject["name"]] if subject["name"] else [f"--selector={subject['selector']}"] * bool(subject["selector"])
    listed, fault = run("get", kinds, *chosen, "--output=json", "--ignore-not-found")
    if fault:
        return section(title, f"{subject['note']}\nkubectl cannot tell: {fault}".strip())
    document = json.loads(listed or "{}")
    items = document.get("items", [document] if document else [])
    table, _ = run("get", kinds, *chosen, "--output=wide", "--ignore-not-found")
    events, fault = run("get", "events", "--sort-by=.metadata.creationTimestamp")
    # A deleted pod still has events.
    named = [f"{item['kind'].lower()}/{item['metadata']['name']}" for item in items] or [f"pod/{subject['name']}"]
    waiting = [item for item in items if not is_ready(item)]
    pods = waiting or [item for item in items if item["kind"] == "Pod"]
    states_of_pods = "\n".join(map(description, waiting))
    recent = fault or events_of(events, named)
    logs = logs_of(run, pods, tail) if pods else ""
    remedy = remedy_of(subject["namespace"], waiting, f"{states_of_pods}\n{recent}\n{logs}")
    parts = [
        (title, "\n".join(filter(None, [subject["note"], table or "there is none"]))),
        *[(f"What helps in {title}", remedy)] * bool(remedy),
        *[(f"Not ready in {title}", states_of_pods)] * bool(waiting),
        (f"Events of {title}", recent),
        *[(f"Log of {title}", logs)] * bool(pods),
    ]
    return "\n".join(section(*part) for part in parts)


def main() -> None:
    """Fail with the report."""
    subject = {
        "namespace": {"type": "str", "required": True},
        "name": {"type": "str", "default": ""},
        "kinds": {"type": "str", "default": "pods"},
        "selector": {"type": "str", "default": ""},
        "note": {"type": "str", "default": ""},
    }
    module = AnsibleModule(
        argument_spec={
            "failure": {"type": "str", "required": True},
            "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
            "subjects": {"type": "list", "elements": "dict", "required": True, "options": subject},
            "tail": {"type": "int", "default": 30},
            "timeout": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    cluster = Cluster(given["kubectl"], given["timeout"])
    with ThreadPoolExecutor(PARALLEL) as pool:
        reports = pool.map(lambda one: report_on(cluster, one, given["tail"]), given["subjects"])
        module.fail_json(msg="\n\n".join([given["failure"].strip(), *reports]), changed=False)


if __name__ == "__main__":
    main()
