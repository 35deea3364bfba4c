"""Every input is checked before anything is changed: roles' inputs, names of variables, and tags."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.contracts import roles
from tests.contracts.host import Host
from tests.contracts.loading import load
from tests.contracts.roles import ROOT
from tests.contracts.wrong_values import (
    FLAG,
    IMAGE,
    LABEL,
    NO_SUCH_TAG,
    NO_SUCH_VARIABLE,
    NO_TAGS,
    NOTHING_CHANGED,
    PATH,
    WHOLE,
)
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

inputs = load("plugins", "action", "check_inputs.py")

SPECS: Final[dict[str, dict[str, Any]]] = inputs.specifications()
READING: Final = ("playbooks/status.yml", "playbooks/site.yml")

# input → (value, what the sentence says of it)
WRONG: Final[dict[str, tuple[Any, str]]] = {
    "scheduler_strategy": ("fastest", "'fastest': set it to least_utilized, best_fit, priority or round_robin."),
    "observability_mode": (True, "'True': set it to auto, always or never."),
    "certificates_force": ("all", "'all': set it to none, serving or ca."),
    "scheduler_replicas": (0, f"'0': {WHOLE} 1 to 2147483647 (example: 2)."),
    "controller_replicas": ("two", f"'two': {WHOLE} 1"),
    "webhook_replicas": (1.5, f"'1.5': {WHOLE} 1"),
    "scheduler_wait_timeout": (True, f"'True': {WHOLE} 1"),
    "webhook_timeout": (31, f"'31': {WHOLE} 1 to 30 (example: 5)."),
    "scheduler_utilization_goal": ("101", f"'101': {WHOLE} 0 to 100 (example: 80)."),
    "certificates_renew_days": (None, f"'None': {WHOLE} 1 to 3650 (example: 30)."),
    "node_image_max_age_days": (-1, f"'-1': {WHOLE} 0"),
    "network_policies_enabled": ("on request", f"'on request': {FLAG}"),
    "crds_remove_kinds": (None, f"'None': {FLAG}"),
    "scheduler_limits": (
        "team-a: device=8",
        'line 1: cannot read "device=8": it must be devices=NUMBER or priority=NUMBER (example: team-a: devices=8',
    ),
    "scheduler_interval": ("30s", "'30s': it must be a Go duration of at most 20s (example: 5s)."),
    "monitor_interval": ("15", "'15': it must be a positive Go duration (example: 15s)."),
    "check_interval": ("1m", "'1m': it must be seconds above 0 and at most 86400 (example: 10s)."),
    "certificates_renew_schedule": ("daily", "'daily': it must be the five fields of a CronJob's schedule"),
    "monitor_namespace": ("Monitors", "'Monitors': it must be up to 63 lower-case letters"),
    "policies_protected_namespaces": ("kube-system", "'kube-system': it must be a list (example: [kube-system, kube"),
    "network_policies_scraping_namespaces": (["a", "b c"], "has 'b c': it must be up to 63 lower-case letters"),
    "network_policies_api_server_cidrs": (["10.0.0.1"], "has '10.0.0.1': it must be an address in CIDR notation"),
    "network_policies_api_server_ports": ([443, 70000], f"'70000': {WHOLE} 1 to 65535"),
    "evidence_log_nodes": ([""], "has '': it must not be empty (example: [nvidia])."),
    "images_base_images": (["python"], f"has 'python': {IMAGE}"),
    "webhook_client_ca": ("/etc/ca.pem", "'/etc/ca.pem': it must be certificates in PEM"),
    "observability_docs_url": ("docs", "'docs': it must be an address of http or https"),
    "observability_labels": ({"release": 7}, f"has release: 7: {LABEL}"),
    "observability_board_labels": (
        "grafana",
        "'grafana': it must be a dictionary (example: {grafana_dashboard: '1'}).",
    ),
    "monitor_pod_options": ({"tolerances": []}, "has tolerances: its keys are image_pull_policy"),
    "driver_kubelet_dir": ("kubelet", f"'kubelet': {PATH}"),
    "monitor_runtime_class": ("NVIDIA", "'NVIDIA': it must be lower-case letters, digits, hyphens and dots"),
    "controller_log_level": ("debug", "'debug': set it to DEBUG, INFO, WARNING or ERROR."),
    "scheduler_name": (["a"], "'['a']': it must be text (example: gpu-scheduler)."),
    "images_kind_program": ("", "'': it must not be empty (example: kind)."),
}
RIGHT: Final[dict[str, Any]] = {
    "scheduler_replicas": "3",
    "scheduler_limits": "# ours\nteam-a: devices=8 priority=1000\n*: devices=unlimited",
    "scheduler_interval": "1s500ms",
    "check_interval": "10",
    "network_policies_enabled": "false",
    "certificates_renew_schedule": "@daily",
    "policies_driver_namespace": "",
    "network_policies_api_server_cidrs": ["10.0.0.1/16", "fd00::/8"],
    "network_policies_api_server_ports": [443],
    "webhook_client_ca": "# ours\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    "observability_labels": {"release": "prometheus"},
    "monitor_pod_options": {"tolerations": [{"operator": "Exists"}]},
    "node_image_max_age_days": 0,
    "node_image_node_pulled": f"kindest/node:v1.36.4@sha256:{'0' * 64}",
}


def problems(name: str, value: object) -> list[str]:
    """Return what is said of this value of an input of a role."""
    return list(inputs.value_problems(name, SPECS[name], value))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_of_a_role_is_named_with_its_rule(name: str) -> None:
    """One sentence has variable, value, rule, and an example."""
    value, rule = WRONG[name]
    (problem,) = problems(name, value)

    assert problem.startswith(name)
    assert rule in problem
    assert "(example: " in problem or ": set it to " in problem


@pytest.mark.parametrize("name", RIGHT)
def test_right_input_of_a_role_is_accepted(name: str) -> None:
    """As numbers or as text, which the command line gives."""
    assert problems(name, RIGHT[name]) == []


@pytest.mark.parametrize("name", [name for name, option in SPECS.items() if "{{" not in str(option["default"])])
def test_default_is_a_right_input(name: str) -> None:
    """And so is the example of each sentence."""
    example = inputs.example_of(name, SPECS[name])

    assert problems(name, SPECS[name]["default"]) == []
    assert problems(name, example.strip("'") if SPECS[name]["type"] == "str" else yaml.safe_load(example)) == []


NAMES: Final = {
    "one letter left out": ({"isolaton": "dra"}, f"isolaton is 'dra': {NO_SUCH_VARIABLE} isolation "),
    "and its nearest": ({"isolaton": "dra"}, "the nearest is isolation (example: -e isolation=dra)."),
    "two letters exchanged": ({"shceduler_replicas": 3}, "nearest is scheduler_replicas (example: -e scheduler_repl"),
    "nothing near": ({"colour": "red"}, "docs/reference.md lists all"),
    "a long value": ({"gpu_schedulin_map": "0=node1:0\n1=node2:0"}, "(example: -e gpu_scheduling_map=…)."),
}
KNOWN: Final = frozenset({"isolation", "scheduler_replicas", "gpu_scheduling_map", "_scheduler_templates"})


@pytest.mark.parametrize("case", NAMES)
def test_unknown_variable_is_named_with_the_nearest(case: str) -> None:
    """A variable that nothing reads would be without effect."""
    given, said = NAMES[case]
    (problem,) = inputs.name_problems(given, KNOWN)

    assert said in problem


@pytest.mark.parametrize(
    "given",
    [
        {"isolation": "dra"},
        {"ansible_python_interpreter": "python3"},
        {"home": "/srv", "isolation": "{{ home }}/cache"},
        {"_scheduler_templates": []},
    ],
)
def test_variable_that_something_reads_is_known(given: dict[str, Any]) -> None:
    """Ansible's own, and a user's that another value reads, are known too."""
    assert list(inputs.name_problems(given, KNOWN)) == []


TAGS: Final[dict[str, tuple[list[str], set[str], str]]] = {
    "a letter too many": (
        ["check", "scheduller"],
        {"check", "scheduler", "always"},
        f"'scheduller': {NO_SUCH_TAG} check or scheduler (example: --tags schedu",
    ),
    "a play without tags": (["scheduler"], {"always"}, NO_TAGS),
}


@pytest.mark.parametrize("case", TAGS)
def test_unknown_tag_is_named_with_the_nearest(case: str) -> None:
    """It would select nothing."""
    given, known, said = TAGS[case]
    (problem,) = inputs.tag_problems("--tags", given, known)

    assert said in problem
    assert list(inputs.tag_problems("--tags", [*inputs.SPECIAL_TAGS], known)) == []


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ((30, 365, 3650), ""),
        ((30, 30, 3650), "certificates_renew_days is '30': it must be less than certificates_serving_days, 30,"),
        ((30, 365, 395), "certificates_ca_days is '395': it must be more than certificates_serving_days and"),
    ],
)
def test_days_that_do_not_fit_each_other_are_named(days: tuple[int, int, int], said: str) -> None:
    """Each is valid alone; with these every run would issue anew."""
    given = {f"certificates_{name}_days": number for name, number in zip(("renew", "serving", "ca"), days, strict=True)}

    assert "".join(inputs.days_problems(given.__getitem__)).startswith(said)
    assert bool(said) is bool(list(inputs.days_problems(given.__getitem__)))


def test_wired_input_is_named_as_the_user_knows_it() -> None:
    """What the wiring computes of the user's variables is not named, and what the user gives in its place is."""
    wiring = {"scheduler_namespace": "{{ system_namespace }}", "images_scheduler_image": "{{ prefix }}a:1"}
    values = {**wiring, "system_namespace": "Wrong", "prefix": ""}
    said = list(inputs.problems_of(SPECS, values, wiring, lambda value: value))
    given = list(inputs.problems_of(SPECS, {**values, "scheduler_namespace": "Own"}, wiring, lambda value: value))

    assert [sentence.split(" is ")[0] for sentence in said] == ["system_namespace"]
    assert [sentence.split(" is ")[0] for sentence in given] == ["scheduler_namespace"]


@pytest.mark.parametrize(
    "playbook", [str(path.relative_to(ROOT)) for path in sorted((ROOT / "playbooks").glob("*.yml"))]
)
def test_each_playbook_that_changes_something_begins_with_the_check(playbook: str) -> None:
    """Whatever the tags."""
    (play,) = roles.read(playbook)
    first = play["tasks"][0]
    checks = first.get("ansible.builtin.import_role") == {"name": "preflight", "tasks_from": "inputs"}

    assert checks is (playbook != "playbooks/status.yml")
    assert not checks or first["tags"] == ["always"]


REFUSED: Final[dict[str, tuple[tuple[str, ...], dict[str, Any], str]]] = {
    "role 8's": ((), {"scheduler_strategy": "fastest"}, "scheduler_strategy is 'fastest': "),
    "role 15's": ((), {"observability_mode": "yes"}, "observability_mode is 'yes': "),
    "no replica": ((), {"scheduler_replicas": 0}, "scheduler_replicas is '0': "),
    "days that do not fit": (
        (),
        {"certificates_renew_days": 400},
        "certificates_renew_days is '400': it must be less than certificates_serving_days, 365",
    ),
    "limits": ((), {"scheduler_limits": "team-a: device=8"}, "scheduler_limits: line 1: cannot read"),
    "a misspelt variable": ((), {"isolaton": "dra"}, "the nearest is isolation (example: -e isolation=dra)"),
    "a misspelt tag": (("--tags", "scheduller"), {}, "--tags has 'scheduller': "),
    "a misspelt tag to skip": (("--skip-tags", "scheduller"), {}, "--skip-tags has 'scheduller': "),
    "with a tag that skips preflight": (
        ("--tags", "check", "--skip-tags", "preflight"),
        {"webhook_replicas": 0},
        "webhook_replicas is '0'",
    ),
}


@pytest.mark.plays
@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input_stops_the_play_before_anything_is_changed(tmp_path: Path, case: str) -> None:
    """No program is called, and the sentence names variable or tag."""
    options, values, said = REFUSED[case]
    run = Host(tmp_path).play("site.yml", "kind", *options, **values)

    assert run.status != 0
    assert NOTHING_CHANGED in run.output
    assert said in run.output
    assert run.calls == []
    assert "ok=0 changed=0" in run.output


@pytest.mark.parametrize(
    ("playbook", "name", "value", "said"),
    [
        ("uninstall", "delete_crds", "all", FLAG),
        ("fix_nodes", "fix_nodes_replicas", "10000", f"{WHOLE} 0 to 9999"),
        ("manifests", "manifests_dir", "manifests", PATH),
    ],
)
def test_variable_of_a_playbook_is_checked_too(playbook: str, name: str, value: object, said: str) -> None:
    """Its default says what it must be."""
    (play,) = roles.read("playbooks", f"{playbook}.yml")
    (problem,) = inputs.problems_of(inputs.of_play(play["vars"]), {name: value}, {}, lambda given: given)

    assert problem.startswith(f"{name} is '{value}': {said}")


@pytest.mark.plays
@pytest.mark.parametrize("playbook", ["uninstall", "destroy", "prepare_rollback", "fix_nodes", "verify", "manifests"])
def test_other_playbooks_refuse_a_misspelt_variable_and_a_tag_too(tmp_path: Path, playbook: str) -> None:
    """Both in one failure, before any program is called."""
    run = Host(tmp_path).play(f"playbooks/{playbook}.yml", "kind", "--tags", "scheduler", delete_crd=True)

    assert run.status != 0
    assert f"delete_crd is 'True': {NO_SUCH_VARIABLE}" in run.output
    assert f"--tags has 'scheduler': {NO_TAGS}" in run.output
    assert run.calls == []


@pytest.mark.plays
def test_misspelt_variable_of_the_users_own_file_is_refused(tmp_path: Path) -> None:
    """As one of the command line; a variable that another of the user's variables reads is known."""
    folder = tmp_path / "inventory"
    shutil.copytree(ROOT / "inventory" / "existing", folder)
    group = folder / "group_vars" / "all"
    group.joinpath("00_wiring.yml").unlink(missing_ok=True)
    group.joinpath("00_wiring.yml").symlink_to(ROOT / "inventory" / "wiring.yml")
    own = {"project_dir": str(ROOT), "kube_context": "x", "replicas": 0, "scheduler_replicas": "{{ replicas }}"}
    group.joinpath("local.yml").write_text(yaml.safe_dump({**own, "monitor_sorce": "nvml"}))
    command = ("ansible-playbook", "-i", str(folder), "site.yml")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit(120), check=False)
    said = " ".join(done.stdout.split())

    assert done.returncode != 0
    assert "the nearest is monitor_source (example: -e monitor_source=nvml)" in said
    assert "scheduler_replicas is '0'" in said
    assert "replicas is '0': no inventory" not in said
    assert "ok=0 changed=0" in said


@pytest.mark.plays
def test_a_single_tag_runs_no_more_of_preflight_than_the_inputs() -> None:
    """Neither host nor registries are asked."""
    command = ("ansible-playbook", "site.yml", "--tags", "check", "--list-tasks")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    listed = [line.split("TAGS")[0].strip() for line in done.stdout.splitlines() if "preflight : " in line]

    assert [line for line in listed if "Validating arguments" not in line] == [
        "preflight : Check every input, before anything is changed"
    ]


def test_what_the_wiring_computes_names_variables_that_exist() -> None:
    """Each plain reference of the wiring leads to a variable of an inventory, of the wiring itself or of a role."""
    wiring = roles.read("inventory", "wiring.yml")
    facts = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")
    named = {found[1] for value in wiring.values() if (found := inputs.REFERENCE.fullmatch(json.dumps(value)[1:-1]))}

    assert named - set(wiring) - set(facts) - set(inputs.specifications()) == set()
