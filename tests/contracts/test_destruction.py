"""Every task that removes, stops or edits something depends on the provider, or changes only our own objects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.paths import REACHED, Reached
from tests.contracts.roles import ROOT
from tests.contracts.tasks import COMMAND, TASKS, Task

# A task that changes the kind cluster, its engine or its kubeconfig must have one of these conditions.
PROVIDER: Final = frozenset({"cluster_provider == 'kind'", "kind_cluster_provider == 'kind'"})

# program → verbs that remove, stop or edit; test_tasks.py lists all other allowed commands.
COMMANDS: Final = {
    "docker": {"rm", "rmi", "stop", "kill", "restart", "start", "prune", "network", "volume", "system"},
    "kind": {"create", "delete", "export"},
    "start-stop-daemon": {"--stop"},
    "kubectl": {"delete", "drain", "config", "patch", "replace", "scale"},
}
STATES: Final = frozenset({"absent", "stopped", "restarted", "unmounted"})
# Our modules that edit a cluster's nodes, whatever their arguments.
MODULES: Final = frozenset({"kind_pod_network"})

CACHE: Final = "an entry of our own cache, which is made anew"
OURS: Final = "an object of our own name and namespace, in the cluster that the inventory names"
# task → why it needs no condition on the provider.
EXPLAINED: Final = {
    "roles/certificates/tasks/main.yml: Take over from cert-manager, and wait until it writes no more": OURS,
    "roles/check/tasks/place.yml: Delete bare pods that were made from something else, or have ended": OURS,
    "roles/crds/tasks/remove.yml: Delete every GPUWorkload, and leave its pod": "of our kind, where it is asked for",
    "roles/container_engine/tasks/start_detached.yml: Remove a stale pid file": "names a process that is gone",
    "roles/monitor/tasks/remove.yml: Delete the GPUNodes without cordons": "of our kind, with nothing of others",
    "roles/node_image/tasks/archive_node.yml: Remove images of components that an interrupted run left": CACHE,
    "roles/node_image/tasks/archive_node.yml: Begin to remove it": CACHE,
    "roles/node_image/tasks/archive_node.yml: Remove what an interrupted run set aside": CACHE,
    "roles/node_image/tasks/archive_python.yml: Remove what the Python base image was made of": CACHE,
    "roles/node_image/tasks/debian_programs.yml: Remove apt's folder": CACHE,
    "roles/node_image/tasks/go.yml: Remove what interrupted builds left": CACHE,
    "roles/node_image/tasks/go_wheel.yml: Remove what an interrupted run left": CACHE,
    "roles/node_image/tasks/kinds_of.yml: Remove the module": CACHE,
    "roles/node_image/tasks/module.yml: Remove the folder": CACHE,
    "roles/node_image/tasks/pull_kubectl.yml: Remove the container": "made two tasks before, and named by its id",
    "roles/node_image/tasks/pull_kubectl.yml: Remove the partial copy": CACHE,
    "roles/node_image/tasks/renew_archive.yml: Remove the archives that the new one replaces": CACHE,
    "roles/node_image/tasks/begin_root.yml: Unmount what an interrupted run left": CACHE,
    "roles/node_image/tasks/begin_root.yml: Remove what an interrupted run left": CACHE,
    "roles/node_image/tasks/updates.yml: Remove what the updates needed": CACHE,
    "roles/policies/tasks/injection.yml: Delete the webhook's registrations": OURS,
    "roles/policies/tasks/injection.yml: Take the webhook's replicas away": OURS,
    "roles/policies/tasks/injection.yml: Take the webhook's address away": OURS,
    "roles/webhook/tasks/replace.yml: Delete the policy that refuses what the webhook writes": OURS,
    "roles/webhook/tasks/replace.yml: Delete the policy that injects": OURS,
}

# Python file of a role or a plugin → what it removes.
REMOVING_CODE: Final = {
    "plugins/modules/cache_entry.py": CACHE,
    "roles/node_image/library/image_archive.py": "its own archive that is not finished",
    "roles/kind_cluster/library/kind_cluster_entry.py": "a kubeconfig without entries; its task asks for the provider",
}
REMOVAL: Final = re.compile(r"\b(unlink|rmtree|rmdir|remove_tree|os\.remove|os\.kill|killpg|terminate)\(")


def is_destructive(task: Task) -> bool:
    """Return whether the task may remove, stop or edit something that existed before."""
    if task.module == COMMAND:
        return bool(COMMANDS.get(task.program(), set()) & set(task.argv()))
    arguments = task.arguments if isinstance(task.arguments, dict) else {}
    return task.module in MODULES or arguments.get("state") in STATES


DESTRUCTIVE: Final = [task for task in TASKS if is_destructive(task) and task.role]


@pytest.mark.parametrize("task", DESTRUCTIVE, ids=str)
def test_destructive_task_asks_for_the_provider(task: Task) -> None:
    """Every path from a play to the task has the condition `cluster_provider == 'kind'`, or a reason against it."""
    ways = [each for each in REACHED if each.task.file == task.file and each.task.data == task.data]
    unasked = [way.play for way in ways if not PROVIDER & set(way.conditions)]

    assert ways, "no play comes to it: remove it"
    assert not unasked or EXPLAINED.get(str(task)), f"these plays come to it without asking: {unasked}"


def test_no_reason_without_a_task() -> None:
    """Each listed reason belongs to a task that needs it, and each Python file that removes something is listed."""
    unasked = {str(each.task) for each in REACHED if is_destructive(each.task) and not PROVIDER & set(each.conditions)}
    files = [path for folder in ("plugins", "roles") for path in (ROOT / folder).rglob("*.py")]
    removing = {path.relative_to(ROOT).as_posix() for path in files if REMOVAL.search(path.read_text())}

    assert set(EXPLAINED) - unasked == set()
    assert set(REMOVING_CODE) == removing


def test_plays_destroy_nothing_by_themselves() -> None:
    """Plays remove things only through roles; molecule's own commands belong to the tests' engine."""
    own = [each.task for each in REACHED if not each.task.role and is_destructive(each.task)]

    assert own == []


def _first_question(way: Reached) -> bool:
    return Path(way.task.file).name == "origin.yml" and way.task.module == "kind_cluster_origin"


@pytest.mark.parametrize("play", ["playbooks/destroy.yml", "playbooks/site.yml", "molecule/default/create.yml"])
def test_who_made_the_cluster_is_asked_before_it_is_changed(play: str) -> None:
    """Role kind_cluster reads the cluster's origin before any task that changes the cluster."""
    ways = [way for way in REACHED if way.play == play and way.task.role == "kind_cluster"]
    asked = next(place for place, way in enumerate(ways) if _first_question(way))

    assert [str(way.task) for way in ways[:asked] if is_destructive(way.task)] == []
    assert any(is_destructive(way.task) for way in ways[asked:])
