"""Describes applied_objects; the action plugin of the same name runs on the controller and does the work."""

from __future__ import annotations

DOCUMENTATION = """
module: applied_objects
short_description: applies what a role has, records it, and deletes what the role no longer applies
description:
  - One task in place of four. Runs kubernetes.core.k8s with all objects, in their order, then M(applied_record).
  - In check mode an object in a namespace that is missing is reported as one that would be created; data of Secrets are
    left out.
options:
  role: {description: "The role whose record is written; without it none is.", type: str}
  namespace: {description: The namespace of the record., required: true, type: str}
  kubectl: {description: "The kubectl command, program and options.", type: list, elements: str, default: [kubectl]}
  kubeconfig: {description: As in kubernetes.core.k8s., type: str}
  context: {description: As in kubernetes.core.k8s., type: str}
  definition:
    description: The objects, each as a dictionary or as YAML text.
    required: true
    type: list
    elements: raw
  server_side:
    description: Whether the API server applies, with our field manager, or the client.
    type: bool
    default: true
  wait_timeout: {description: Seconds to wait for each object; without it nothing is waited for., type: int}
  wait_condition: {description: As in kubernetes.core.k8s., type: dict}
  applied:
    description: Registered results of other tasks of kubernetes.core.k8s, to be recorded with these objects.
    type: list
    elements: raw
    default: []
  failure: {description: "What it means where this fails, as the begin of a sentence.", type: str}
  subjects:
    description: As in M(failure_report), for the report of a failure; without them the failure is reported alone.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    support: full
    description: Reports what would be applied and deleted.
  diff_mode:
    support: full
    description: Shows each object and the record.
"""

EXAMPLES = """
- name: Apply rights and Deployment, and wait for every replica
  applied_objects:
    role: controller
    definition: "{{ query('ansible.builtin.template', 'rbac.yaml.j2', 'deployment.yaml.j2') }}"
    wait_timeout: 180
    failure: The controller did not become available
    subjects: [{namespace: gpu-scheduler-system, kinds: "deployments,pods"}]
"""

RETURN = """
result: {description: "As of kubernetes.core.k8s with several objects: C(results) has one of each.", type: dict}
deleted: {description: "The objects that were deleted or, in check mode, would be.", type: list}
left: {description: "The objects that stay although the record names them, and why.", type: list}
"""
