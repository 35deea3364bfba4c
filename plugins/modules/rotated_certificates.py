"""Describes rotated_certificates; the action plugin of the same name runs on the controller and does the work."""

from __future__ import annotations

DOCUMENTATION = """
module: rotated_certificates
short_description: decides what the Secrets of the webhook's CA and certificate shall hold, and issues what is due
description:
  - Reads what is stored and whom the API server trusts, and issues by the code of C(gpu-scheduler issue).
  - Only computes; the change is the Secret that is applied afterwards.
options:
  found:
    description: The two Secrets and the webhook's registrations, as far as they exist.
    type: list
    elements: dict
    required: true
  namespace:
    description: The namespace of the Secrets.
    type: str
    required: true
  service:
    description: The Service whose names the certificate is made for.
    type: str
    required: true
  ca_days:
    description: Days that a new CA is valid.
    type: int
    required: true
  serving_days:
    description: Days that a new certificate is valid.
    type: int
    required: true
  renew_days:
    description: A certificate with fewer days left is due.
    type: int
    required: true
  force:
    description: What is issued, due or not.
    type: str
    choices: [none, serving, ca]
    default: none
attributes:
  check_mode:
    support: full
    description: Computes the same.
"""

EXAMPLES = """
- name: Issue what is due
  rotated_certificates:
    found: "{{ __found.found | flatten }}"
    namespace: gpu-scheduler-system
    service: gpu-scheduler-webhook
    ca_days: 3650
    serving_days: 365
    renew_days: 30
  register: __issued
  no_log: true
"""

RETURN = """
ca: {description: The data of the CA's Secret, type: dict, returned: always}
serving: {description: The data of the serving Secret, type: dict, returned: always}
waits: {description: "Days left of a certificate that waits for the next run, or -1", type: int, returned: always}
refused: {description: Whether a certificate is asked for that nobody would trust, type: bool, returned: always}
"""
