"""Every task that removes, stops or edits something asks for the provider, or is about what the same inventory made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.contracts.paths import REACHED, Reached
from tests.contracts.roles import ROOT
from tests.contracts.tasks import COMMAND, TASKS, Task

# Either of them stands on the way to a task that is about the kind cluster, its engine or its kubeconfig.
PROVIDER: Final = frozenset({"cluster_provider == 'kind'", "kind_cluster_provider == 'kind'"})

# program → verbs that remove, stop or edit; whatever else a command may be stands in test_tasks.py.
COMMANDS: Final = {
    "docker": {"rm", "rmi", "stop", "kill", "restart", "start", "prune", "network", "volume", "system"},
    "kind": {"create", "delete", "export"},
    "start-stop-daemon": {"--stop"},
    "kubectl": {"delete", "drain", "config", "patch", "replace", "scale"},
}
STATES: Final = frozenset({"absent", "stopped", "restarted", "unmounted"})
# Modules of ours that edit a cluster's nodes, whatever they are told.
MODULES: Final = frozenset({"kind_pod_network"})

CACHE: Final = "an entry of our own cache, which is made anew"
OURS: Final = "an object of our own name and namespace, in the cluster that the inventory names"
# task → why it need not ask for the provider.
EXPLAINED: Final = {
    "roles/check/tasks/place.yml: Delete bare pods that were made from something else, or have ended": OURS,
    "roles/container_engine/tasks/start_detached.yml: Remove a stale pid file": "names a process that is gone",
    "roles/monitor/tasks/remove.yml: Take the DaemonSet away": OURS,
    "roles/monitor/tasks/remove.yml: Delete a GPUNode": "of a kind that is ours, written by our controller alone",
    "roles/monitor/tasks/remove.yml: Take rights, Leases and namespace away": OURS,
    "roles/node_image/tasks/archive_node.yml: Remove what the node image was made of, and its elders": CACHE,
    "roles/node_image/tasks/archive_python.yml: Remove what the Python base image was made of": CACHE,
    "roles/node_image/tasks/go_wheel.yml: Remove what an interrupted run left": CACHE,
    "roles/node_image/tasks/pull_kubectl.yml: Remove the container": "made two tasks before, and named by its id",
    "roles/node_image/tasks/pull_kubectl.yml: Remove the partial copy": CACHE,
    "roles/node_image/tasks/root.yml: Unmount what an interrupted run left": CACHE,
    "roles/node_image/tasks/root.yml: Remove what an interrupted run left": CACHE,
    "roles/policies/tasks/injection.yml: Tell the API server to ask no webhook any more": OURS,
    "roles/policies/tasks/injection.yml: Take the webhook's replicas away": OURS,
    "roles/policies/tasks/injection.yml: Take the webhook's address away": OURS,
    "roles/webhook/tasks/replace.yml: Refuse what the webhook writes no more": OURS,
    "roles/webhook/tasks/replace.yml: Let the webhook inject alone": OURS,
}

# Python file of a role or a plugin → what of it removes something.
REMOVING_CODE: Final = {
    "plugins/modules/cache_entry.py": CACHE,
    "roles/node_image/library/image_archive.py": "its own archive that is not finished",
    "roles/kind_cluster/library/kind_cluster_entry.py": "a kubeconfig without entries; its task asks for the provider",
}
REMOVAL: Final = re.compile(r"\b(unlink|rmtree|rmdir|remove_tree|os\.remove|os\.kill|killpg|terminate)\(")


def is_destructive(task: Task) -> bool:
    """Whether the task may remove, stop or edit what was there before."""
    if task.module == COMMAND:
        return bool(COMMANDS.get(task.program(), set()) & set(task.argv()))
    told = task.arguments if isinstance(task.arguments, dict) else {}
    return task.module in MODULES or told.get("state") in STATES


DESTRUCTIVE: Final = [task for task in TASKS if is_destructive(task) and task.role]


@pytest.mark.parametrize("task", DESTRUCTIVE, ids=str)
def test_destructive_task_asks_for_the_provider(task: Task) -> None:
    """On every way from a play to it stands `cluster_provider == 'kind'`, or a reason says why it may do without."""
    ways = [each for each in REACHED if each.task.file == task.file and each.task.data == task.data]
    unasked = [way.play for way in ways if not PROVIDER & set(way.conditions)]

    assert ways, "no play comes to it: remove it"
    assert not unasked or EXPLAINED.get(str(task)), f"these plays come to it without asking: {unasked}"


def test_no_reason_without_a_task() -> None:
    """Each reason is that of a task that needs it, and each Python file that removes something is known."""
    unasked = {str(each.task) for each in REACHED if is_destructive(each.task) and not PROVIDER & set(each.conditions)}
    files = [path for folder in ("plugins", "roles") for path in (ROOT / folder).rglob("*.py")]
    removing = {path.relative_to(ROOT).as_posix() for path in files if REMOVAL.search(path.read_text())}

    assert set(EXPLAINED) - unasked == set()
    assert set(REMOVING_CODE) == removing


def test_plays_destroy_nothing_by_themselves() -> None:
    """No play removes anything but through a role; molecule's own commands are those of the tests' engine."""
    own = [each.task for each in REACHED if not each.task.role and is_destructive(each.task)]

    assert own == []


def _first_question(way: Reached) -> bool:
    return Path(way.task.file).name == "origin.yml" and way.task.module == "kind_cluster_origin"


@pytest.mark.parametrize("play", ["playbooks/destroy.yml", "playbooks/site.yml", "molecule/default/create.yml"])
def test_who_made_the_cluster_is_asked_before_it_is_touched(play: str) -> None:
    """No task of role kind_cluster that changes the cluster comes before the one that reads who made it."""
    ways = [way for way in REACHED if way.play == play and way.task.role == "kind_cluster"]
    asked = next(place for place, way in enumerate(ways) if _first_question(way))

    assert [str(way.task) for way in ways[:asked] if is_destructive(way.task)] == []
    assert any(is_destructive(way.task) for way in ways[asked:])
