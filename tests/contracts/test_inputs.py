"""Each wrong value of each inventory variable has a message of its own, before anything is read or changed."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.contracts import roles
from tests.contracts.loading import load
from tests.contracts.roles import ROOT
from tests.contracts.wrong_values import NOTHING_CHANGED, RIGHT, WRONG, WRONG_COMPUTED
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

preflight = load("roles", "preflight", "filter_plugins", "preflight.py")
pod_options = load("roles", "preflight", "filter_plugins", "pod_options.py")
inputs = load("plugins", "action", "check_inputs.py")

CASES = [
    pytest.param(name, *reported, id=f"{name}: {case}")
    for name, cases in {**WRONG, **WRONG_COMPUTED}.items()
    for case, reported in cases.items()
]


def problems(values: dict[str, Any]) -> list[str]:
    """Return preflight's messages for the kind inventory with these values."""
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")
    # Values that the inventory computes.
    facts |= dict.fromkeys(
        ("project_dir", "kubeconfig", "tools_dir", "cache_dir", "evidence_dir", "kubectl_program"), "/srv/gpu-scheduler"
    )
    facts |= {"scheduler_image": "gpu-scheduler:dev-0", "check_image": "gpu-scheduler-check:dev-0"}
    facts["kube_context"] = f"kind-{values.get('cluster_name', facts['cluster_name'])}"
    given = facts | values
    reported: list[str] = preflight.preflight_problems(given) + pod_options.pod_option_problems(given)
    wiring = roles.read("inventory", "wiring.yml")
    return [*reported, *inputs.problems_of(inputs.specifications(), wiring | given, wiring, lambda value: value)]


@pytest.mark.parametrize(("name", "values", "rule"), CASES)
def test_wrong_value_is_named_with_its_rule(name: str, values: dict[str, Any], rule: str) -> None:
    """The message names the variable and its value, unless that is long, and the rule."""
    found = [problem for problem in problems(values) if name in problem and rule in problem]

    assert found
    assert name == "gpu_scheduling_map" or not isinstance(values[name], str) or values[name] in found[0]


@pytest.mark.parametrize("values", RIGHT.values(), ids=list(RIGHT))
def test_right_value_is_accepted(values: dict[str, Any]) -> None:
    """An allowed value has no message."""
    assert problems(values) == []


@pytest.mark.parametrize("inventory", ["kind", "existing"])
def test_every_variable_has_a_wrong_value(inventory: str) -> None:
    """Every variable of the inventory has a row in the table, and the table has no others."""
    assert roles.inventory_variables(inventory) == set(WRONG)


@pytest.mark.parametrize("inventory", ["kind", "existing"])
def test_every_variable_reaches_preflight(inventory: str) -> None:
    """With a wrong list for every variable, preflight names them all before any role runs, in both inventories."""
    given: dict[str, object] = {name: ["wrong"] for name in WRONG}
    # A list is valid for some variables, and an unknown provider has no context of its own.
    given |= {
        "worker_nodes": [],
        "scheduler_users": "",
        "check_tolerations": "",
        "cluster_provider": "existing" if inventory == "existing" else "kind",
    }
    command = ("ansible-playbook", "-i", f"inventory/{inventory}", "site.yml", "-e", json.dumps(given))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit(120), check=False)
    reported = " ".join(done.stdout.split())

    assert done.returncode != 0
    assert NOTHING_CHANGED in reported
    assert [name for name in WRONG if f"{name} is " not in reported and name != "cluster_provider"] == []
    assert "changed=0" in reported


@pytest.mark.parametrize(("inventory", "named"), [("kind", True), ("existing", False)])
def test_line_that_enters_the_cluster_is_that_of_the_inventory(inventory: str, *, named: bool) -> None:
    """`make env`, and `make up` at its end, name the checkout's kubeconfig only for the inventory's own cluster."""
    command = ("make", "env", f"INVENTORY=inventory/{inventory}")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    assert (f"KUBECONFIG={ROOT}/.kube/config" in done.stdout) is named
    assert f"PATH={ROOT}/bin:{ROOT}/.venv/bin:" in done.stdout


def test_inventory_outside_of_the_checkout_links_the_wiring_and_overrides_it(tmp_path: Path) -> None:
    """A file of its own overrides any line of the linked files, and a variable of the command line overrides both."""
    shutil.copy(ROOT / "inventory" / "existing" / "hosts.yml", tmp_path)
    group = tmp_path / "group_vars" / "all"
    group.mkdir(parents=True)
    (group / "00_wiring.yml").symlink_to(ROOT / "inventory" / "wiring.yml")
    facts = roles.read("inventory", "existing", "group_vars", "all", "facts.yml")
    own = {"project_dir": str(ROOT), "images_delivery": "none", "system_namespace": "own", "check_namespace": "own"}
    (group / "facts.yml").write_text(yaml.safe_dump(facts | own))
    names = ("images_delivery", "scheduler_namespace", "evidence_check_namespace", "controller_namespace")
    shown = f"msg={{{{ [{', '.join(names)}] | join(' ') }}}}"
    command = ("ansible", "localhost", "-i", str(tmp_path), "-m", "ansible.builtin.debug", "-a", shown)
    given = ("-e", "check_namespace=given", "-e", "controller_namespace=given")
    done = subprocess.run((*command, *given), cwd=ROOT, capture_output=True, text=True, timeout=limit(60), check=True)

    assert "none own given given" in done.stdout
