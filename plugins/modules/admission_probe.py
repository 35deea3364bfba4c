"""Waits until the API server treats probe pods as our policies and webhook demand; the requests are dry runs.

A cluster can have several API servers, and each notices a policy or a registration at a time of its own. So an answer
counts only if several in a row are right, each over a new connection: kubectl opens one for each request. Not a loop of
kubernetes.core.k8s: it takes a second for each request, and Ansible's `until` cannot count.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types
from ansible.module_utils.kubectl import Cluster, ClusterError  # type: ignore[import-untyped]  # ansible.cfg says where

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = """
module: admission_probe
short_description: wait until the API server refuses and changes pods as our policies and webhook demand
description:
  - Asks the API server what it would make of each probe pod, until enough answers in a row are right; creates nothing.
  - Fails with the last answer, and names the policy or webhook of somebody else that refuses a probe pod.
options:
  probes:
    description: What to ask, one after the other.
    required: true
    type: list
    elements: dict
    suboptions:
      expected:
        description: What a right answer shows, as the end of a sentence that begins with "cannot see that".
        required: true
        type: str
      pod:
        description: The pod.
        required: true
        type: dict
      refused_by:
        description: Texts, of which a right refusal has one.
        type: list
        elements: str
        default: []
      sets:
        description: The field in which an admitted pod has CUDA_VISIBLE_DEVICES; without it an admission is wrong.
        type: str
        choices: ["", value, valueFrom]
        default: ""
      not_refused_by:
        description: Texts; every answer is right but a refusal that has one of them.
        type: list
        elements: str
        default: []
  answers:
    description: How many right answers in a row are needed.
    type: int
    default: 3
  kubectl:
    description: The kubectl command, program and options.
    type: list
    elements: str
    default: [kubectl]
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Wait until the API server asks the webhook
  admission_probe:
    probes:
      - {expected: the API server asks the webhook, pod: "{{ pod_with_a_wrong_map }}", refused_by: [MapInvalid]}
"""

Json = dict[str, Any]

VARIABLE: Final = "CUDA_VISIBLE_DEVICES"
# Who refused, in the words of the API server; the first group is the name.
REFUSERS: Final = (
    r"(ValidatingAdmissionPolicy '[^']+')",
    r'(admission webhook "[^"]+") denied',
    r'(PodSecurity "[^"]+")',
    r"exceeded (quota: [^,]+)",
    r"(security context constraint)",
)
OURS: Final = "gpu-scheduler"
# Seconds to wait for each probe, and for each answer.
TIMEOUT: Final = 30
CALL_TIMEOUT: Final = 10
PAUSE: Final = 0.5


class Answer(NamedTuple):
    """What the API server makes of a pod: the pod as it would be stored, or why it is refused."""

    pod: Json
    refusal: str = ""


def is_right(probe: Json, answer: Answer) -> bool:
    """Whether the answer is the one that the probe waits for."""
    if probe["not_refused_by"]:
        return not any(text in answer.refusal for text in probe["not_refused_by"])
    if answer.refusal:
        return any(text in answer.refusal for text in probe["refused_by"])
    variables = answer.pod["spec"]["containers"][0].get("env", []) if probe["sets"] else []
    return any(each["name"] == VARIABLE and probe["sets"] in each for each in variables)


def failure(probe: Json, answer: Answer, timeout: float) -> str:
    """Say what was not seen, and who is in the way."""
    metadata = probe["pod"]["metadata"]
    start = f"cannot see that {probe['expected']}"
    for pattern in REFUSERS:
        found = re.search(pattern, answer.refusal)
        if found and OURS not in found[1]:
            return (
                f"{start}: {found[1]} refuses the probe pod {metadata['name']} first. Except namespace"
                f" {metadata['namespace']} from it, or let it accept the pod, and run this again. The API server says:"
                f" {answer.refusal}"
            )
    last = answer.refusal or f"it admits pod {metadata['name']} without it"
    return f"{start} within {timeout:.0f} s. The last answer of the API server: {last}"


def wait(probe: Json, ask: Callable[[Json], Answer], answers: int, timeout: float) -> str:
    """Return an empty text once enough answers in a row are right, or the failure when the time is over."""
    deadline, right = time.monotonic() + timeout, 0
    while True:
        answer = ask(probe["pod"])
        right = right + 1 if is_right(probe, answer) else 0
        if right >= answers:
            return ""
        if not right:
            if time.monotonic() >= deadline:
                return failure(probe, answer, timeout)
            time.sleep(PAUSE)


def ask_with(kubectl: list[str]) -> Callable[[Json], Answer]:
    """Return a function that asks over a connection of its own."""
    cluster = Cluster(kubectl, CALL_TIMEOUT)

    def ask(pod: Json) -> Answer:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods?dryRun=All"
        try:
            output, complaints = cluster.call(("create", "--raw", path, "--filename=-"), json.dumps(pod))
        except ClusterError as error:
            return Answer({}, str(error))
        return Answer({}, " ".join(" ".join(complaints).split())) if complaints else Answer(json.loads(output))

    return ask


def main() -> None:
    """Ask until all probes are answered rightly, or fail."""
    probe = {
        "expected": {"type": "str", "required": True},
        "pod": {"type": "dict", "required": True},
        "refused_by": {"type": "list", "elements": "str", "default": []},
        "sets": {"type": "str", "choices": ["", "value", "valueFrom"], "default": ""},
        "not_refused_by": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(
        argument_spec={
            "probes": {"type": "list", "elements": "dict", "required": True, "options": probe},
            "answers": {"type": "int", "default": 3},
            "kubectl": {"type": "list", "elements": "str", "default": ["kubectl"]},
        },
        supports_check_mode=True,
    )
    given = module.params
    ask = ask_with(given["kubectl"])
    for each in given["probes"]:
        fault = wait(each, ask, given["answers"], TIMEOUT)
        if fault:
            module.fail_json(msg=fault)
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
