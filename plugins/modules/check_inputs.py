"""Describes check_inputs; the action plugin of the same name runs on the controller and does the work."""

from __future__ import annotations

DOCUMENTATION = """
module: check_inputs
short_description: refuses wrong values, unknown variables and unknown tags before anything is changed
description:
  - Checks each variable that the user may set against the argument specification of the role that reads it, by
    Ansible's own validator, and numbers and texts against their ranges and forms.
  - Refuses variables of the command line and of the inventory that no inventory, role or playbook has, and tags that no
    task of the play has, with the nearest name.
  - Fails once, with a sentence for each problem. Changes nothing.
options:
  problems:
    description: What other checks have found; they come first.
    type: list
    elements: str
    default: []
  unchecked:
    description: Variables that the play does without, so that their problems do not stop it.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Checks the same.
"""

EXAMPLES = """
- name: Check every input
  check_inputs:
    problems: "{{ _preflight_input_problems }}"
"""

RETURN = """
msg: {description: A sentence for each problem., type: list, elements: str, returned: on failure}
"""
