"""Each wrong value of each inventory variable gets a sentence of its own, before anything is looked at or changed."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.contracts import roles
from tests.contracts.loading import load
from tests.contracts.roles import ROOT
from tests.contracts.wrong_values import RIGHT, WRONG
from tests.waiting import limit

preflight = load("roles", "preflight", "filter_plugins", "preflight.py")

CASES = [pytest.param(*told, id=f"{name}: {case}") for name, cases in WRONG.items() for case, told in cases.items()]


def problems(values: dict[str, Any]) -> list[str]:
    """Return what preflight says of the kind inventory's facts with these values among them."""
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")
    # What the inventory computes.
    facts |= dict.fromkeys(
        ("project_dir", "kubeconfig", "tools_dir", "cache_dir", "evidence_dir"), "/srv/gpu-scheduler"
    )
    facts["kube_context"] = f"kind-{values.get('cluster_name', facts['cluster_name'])}"
    told: list[str] = preflight.preflight_problems(facts | values)
    return told


@pytest.mark.parametrize(("values", "sentence"), CASES)
def test_wrong_value_is_named_with_rule_and_example(values: dict[str, Any], sentence: str) -> None:
    """The sentence names the variable and its value, the rule, and what would be right."""
    assert sentence in " ".join(problems(values))


@pytest.mark.parametrize("values", RIGHT.values(), ids=list(RIGHT))
def test_right_value_is_let_in(values: dict[str, Any]) -> None:
    """What is allowed is not refused."""
    assert problems(values) == []


@pytest.mark.parametrize("inventory", ["kind", "existing"])
def test_every_variable_has_a_wrong_value(inventory: str) -> None:
    """No variable of the inventory goes unchecked: each has a row in the table, and the table has no other."""
    assert set(roles.read("inventory", inventory, "group_vars", "all", "facts.yml")) == set(WRONG)


@pytest.mark.parametrize("inventory", ["kind", "existing"])
def test_every_variable_reaches_preflight(inventory: str) -> None:
    """With a list for every variable one run names them all, in both inventories, before any role takes offence."""
    given: dict[str, object] = {name: ["wrong"] for name in WRONG}
    # A list is right there, and an unknown provider has no context of its own.
    given |= {
        "worker_nodes": [],
        "scheduler_users": "",
        "cluster_provider": "existing" if inventory == "existing" else "kind",
    }
    command = ("ansible-playbook", "-i", f"inventory/{inventory}", "site.yml", "-e", json.dumps(given))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit(120), check=False)
    told = " ".join(done.stdout.split())

    assert done.returncode != 0
    assert "The inventory needs a look:" in told
    assert [name for name in WRONG if f"{name} is " not in told and name != "cluster_provider"] == []
    assert "changed=0" in told


@pytest.mark.parametrize(("inventory", "named"), [("kind", True), ("existing", False)])
def test_line_that_enters_the_cluster_is_that_of_the_inventory(inventory: str, *, named: bool) -> None:
    """`make env`, and `make up` at its end, name the checkout's kubeconfig only where the cluster in it is meant."""
    command = ("make", "env", f"INVENTORY=inventory/{inventory}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    assert (f"KUBECONFIG={ROOT}/.kube/config" in done.stdout) is named
    assert f"PATH={ROOT}/.venv/bin" in done.stdout
