"""Ends a role that waited in vain: fails with one text that tells what is there, what holds it up, its events and logs.

Roles that wait on the cluster call it in their `rescue`. It only reads, and it tells what it can: an API server that
does not answer any more is part of the story.
"""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DOCUMENTATION = """
module: cluster_story
short_description: fail with description, events and logs of what did not get ready
description:
  - Always fails, with O(failure) and after it, for each subject, a table of what is there, what holds up the pods that
    are not ready, events and the ends of logs.
  - Changes nothing, so it runs in check mode too.
options:
  failure:
    description: The sentence that the story begins with, what failed and why.
    required: true
    type: str
  kubectl:
    description: The kubectl command, program and options.
    type: list
    elements: str
    default: [kubectl]
  subjects:
    description: What the story is about.
    required: true
    type: list
    elements: dict
    suboptions:
      namespace:
        description: Where it is.
        required: true
        type: str
      name:
        description: The name of one pod, which may be gone; without it kinds and selector say what is meant.
        type: str
        default: ""
      kinds:
        description: Kinds of objects to tell of, separated by commas.
        type: str
        default: pods
      selector:
        description: Labels of those objects; empty is all of the namespace.
        type: str
        default: ""
      note:
        description: Told first, where there is something to say of this subject.
        type: str
        default: ""
  tail:
    description: How many lines of each log are shown.
    type: int
    default: 30
  timeout:
    description: Seconds for each question to the cluster.
    type: int
    default: 15
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Fail with the story
  cluster_story:
    failure: "The scheduler is not available: {{ ansible_failed_result.msg }}"
    subjects:
      - {namespace: gpu-scheduler-system, kinds: "deployments,pods", selector: app.kubernetes.io/name=gpu-scheduler}
"""

NO_EVENTS: Final = "none; a cluster keeps them for an hour"
# Subjects are few; more questions at once would not make a loaded API server quicker.
PARALLEL: Final = 4
# Ansible shows a failure twice: enough to see a back-off repeat itself, little enough to read.
MOST_EVENTS: Final = 15
MOST_LOGS: Final = 4

Json = dict[str, Any]


def said(command: list[str], timeout: int) -> tuple[str, str]:
    """What the command printed, and what is wrong where it failed."""
    try:
        done = subprocess.run(  # noqa: S603 - the command is the caller's kubectl
            command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return "", f"no answer in {timeout} s"
    except OSError as error:
        return "", f"cannot run {command[0]}: {error}"
    stdout, stderr = (text.decode(errors="replace").strip("\n") for text in (done.stdout, done.stderr))
    return stdout, (stderr or f"exit status {done.returncode}") if done.returncode else ""


def is_ready(item: Json) -> bool:
    """Whether the object is no pod, or one that is ready or has ended well."""
    status = item.get("status", {})
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    return item["kind"] != "Pod" or status.get("phase") == "Succeeded" or conditions.get("Ready") == "True"


def states(status: Json) -> Iterator[str]:
    """What each container of a pod says of itself, its last end included."""
    for container in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        for name, state in [*container.get("state", {}).items(), *container.get("lastState", {}).items()]:
            code = f"exit status {state['exitCode']}" if "exitCode" in state else ""
            words = [word for word in (state.get("reason", ""), code, state.get("message", "").strip()) if word]
            yield f"container {container['name']}, {name}: {', '.join(words) or 'since ' + state.get('startedAt', '?')}"


def description(pod: Json) -> str:
    """Where a pod that is not ready stands, and what holds it up."""
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


def events_of(text: str, objects: list[str]) -> str:
    """The lines of `kubectl get events` about these objects, the newest last, under the heading."""
    about = re.compile(f" (?:{'|'.join(map(re.escape, objects))})( |$)")
    lines = text.splitlines()
    found = [line for line in lines[1:] if about.search(line)]
    return "\n".join([lines[0], *found[-MOST_EVENTS:]]) if found else NO_EVENTS


def logs_of(ask: Callable[..., tuple[str, str]], pods: list[Json], tail: int) -> str:
    """The ends of the pods' logs, each line under its pod's and container's name."""
    options = (f"--tail={tail}", "--all-containers", "--prefix", "--ignore-errors")
    told = [ask("logs", pod["metadata"]["name"], *options) for pod in pods[:MOST_LOGS]]
    return "\n".join(text for pair in told for text in pair if text) or "empty"


def section(title: str, text: str) -> str:
    """A title with its text indented below it."""
    return "\n".join([f"{title}:", *(f"  {line}".rstrip() for line in text.splitlines())])


def tell(kubectl: list[str], subject: dict[str, str], tail: int, timeout: int) -> str:
    """The story of one subject; as much of it as the cluster still tells."""

    def ask(*words: str) -> tuple[str, str]:
        return said([*kubectl, *words, f"--namespace={subject['namespace']}"], timeout)

    kinds = "pods" if subject["name"] else subject["kinds"]
    title = f"{subject['namespace']}/{subject['name'] or kinds}"
    chosen = [subject["name"]] if subject["name"] else [f"--selector={subject['selector']}"] * bool(subject["selector"])
    told, fault = ask("get", kinds, *chosen, "--output=json", "--ignore-not-found")
    if fault:
        return section(title, f"{subject['note']}\nkubectl cannot tell: {fault}".strip())
    document = json.loads(told or "{}")
    items = document.get("items", [document] if document else [])
    table, _ = ask("get", kinds, *chosen, "--output=wide", "--ignore-not-found")
    events, fault = ask("get", "events", "--sort-by=.metadata.creationTimestamp")
    # A pod that is gone has events still.
    named = [f"{item['kind'].lower()}/{item['metadata']['name']}" for item in items] or [f"pod/{subject['name']}"]
    waiting = [item for item in items if not is_ready(item)]
    pods = waiting or [item for item in items if item["kind"] == "Pod"]
    parts = [
        (title, "\n".join(filter(None, [subject["note"], table or "there is none"]))),
        *[(f"Not ready in {title}", "\n".join(map(description, waiting)))] * bool(waiting),
        (f"Events of {title}", fault or events_of(events, named)),
        *[(f"Log of {title}", logs_of(ask, pods, tail))] * bool(pods),
    ]
    return "\n".join(section(*part) for part in parts)


def main() -> None:
    """Tell, and fail."""
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
    asked: dict[str, Any] = module.params
    with ThreadPoolExecutor(PARALLEL) as pool:
        stories = pool.map(lambda one: tell(asked["kubectl"], one, asked["tail"], asked["timeout"]), asked["subjects"])
        module.fail_json(msg="\n\n".join([asked["failure"].strip(), *stories]), changed=False)


if __name__ == "__main__":
    main()
