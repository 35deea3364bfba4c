"""Describes applied_record; the action plugin of the same name runs on the controller and does the work."""

from __future__ import annotations

DOCUMENTATION = """
module: applied_record
short_description: records what a role applied, prunes what it no longer applies, removes all of it
description:
  - Keeps a ConfigMap C(gpu-scheduler-applied-ROLE), in whose name hyphens stand for underscores, with a line for each
    object that a role applied, and its uid.
  - With state present, deletes what the record has and this run did not apply, where it still has the recorded uid and
    our label or field manager. Namespaces, CustomResourceDefinitions and the webhook's Secrets are never pruned.
  - With state absent, deletes what the record and I(objects) name, where it has our label or field manager, waits, and
    says what holds the rest. A Namespace with objects of others stays.
options:
  role: {description: The role, required: true, type: str}
  namespace: {description: The namespace of the record, required: true, type: str}
  kubectl: {description: "The kubectl command, program and options.", type: list, elements: str, default: [kubectl]}
  state: {description: "Whether to record, or to remove.", type: str, choices: [present, absent], default: present}
  applied: {description: Registered results of kubernetes.core.k8s., type: list, elements: raw, default: []}
  objects:
    description: With state absent, what an interrupted run may have applied and not recorded.
    type: list
    elements: dict
    default: []
  named:
    description: With state absent, what is ours by its name alone, whoever wrote it.
    type: list
    elements: dict
    default: []
  only_kinds:
    description: With state absent, remove these kinds only and keep the record.
    type: list
    elements: str
    default: []
  spared_kinds: {description: With state absent, leave these kinds., type: list, elements: str, default: []}
  wait_timeout: {description: Seconds until all must be gone., type: int, default: 120}
attributes:
  check_mode:
    support: full
    description: Lists what would be deleted.
  diff_mode:
    support: full
    description: Shows the record before and after.
"""

EXAMPLES = """
- name: Record what was applied, and delete what is no longer applied
  applied_record:
    role: scheduler
    namespace: gpu-scheduler-system
    applied: "{{ [__scheduler_objects] }}"
"""

RETURN = """
deleted: {description: "The objects that were deleted or, in check mode, would be.", type: list, returned: always}
left: {description: "The objects that stay although record or role names them, and why.", type: list, returned: always}
"""
