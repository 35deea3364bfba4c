"""Rules for every task, checked in the task files: no shell, few programs, correct changes, progress, reports."""

from __future__ import annotations

import re
from typing import Final

import pytest
from jinja2 import Environment

from tests.contracts.roles import ROOT
from tests.contracts.tasks import COMMAND, COMMANDS, TASKS, Task

# program → verb → why no module can do it. A verb is the first word of the command that contains no template.
ALLOWED: Final[dict[str, dict[str, str]]] = {
    "kind": {
        "create": "kind's own work, and there is no module for it",
        "export": "writes the kubeconfig",
        "get": "names the nodes; reads only",
        "load": "brings images into nodes",
        "--version": "reads only",
    },
    "go": {"build": "compiles", "mod": "fetches a module by the locked sums", "version": "reads only"},
    "kubeadm": {"config": "names the images of its release; reads only"},
    "python": {
        "pip": "downloads wheels for another Python, by hash; the module pip only installs",
        "pytest": "asks the cluster, in molecule's verify",
        "tests.cluster.healing.own_engine": "makes and takes back the tests' own engine",
        "tests.cluster.existing.scenario": "makes and removes a cluster that is not the play's",
    },
    "docker": {
        "version": "asks whether an engine answers, without the library that may not be there yet",
        "info": "reads only",
        "ps": "reads only",
        "image": "inspect: reads only, several images in one go",
        "exec": "reads inside a node: containerd's images, the journal",
        "load": "loads an archive; the module needs twice its size in memory",
        "pull": "pulls by digest without a tag, which the module cannot name",
        "create": "a container to copy kubectl out of; it never runs",
        "cp": "copies out of a container that never runs",
        "start": "starts stopped nodes together",
        "rm": "removes nodes with their volumes",
        "network": "removes kind's network where nobody uses it",
    },
    "start-stop-daemon": {"--start": "dockerd without systemd", "--stop": "dockerd without systemd"},
    "flock": {
        "debootstrap": "holds the lock that an interrupted run's debootstrap still has",
        "chroot": "installs updates in that root; the module apt installs on the host",
        "true": "waits for it",
    },
    "apt-get": {
        "indextargets": "names the host's mirror; reads only",
        "update": "reads what a release has, into a folder of our own",
        "download": "fetches packages, and the module apt installs",
    },
    "dpkg-deb": {"--extract": "unpacks a package without installing it"},
    "mv": {
        "": "gives a whole file or folder its name in one step; no module renames",
        "--target-directory": "sets folders aside that are no longer needed",
    },
    "tee": {"": "writes below /proc/sys, where no module writes without the program sysctl"},
    "git": {"rev-parse": "reads only", "status": "reads only"},
    "kubectl": {
        "api-resources": "asks which kinds the cluster serves; reads only",
        "get": "evidence is what kubectl prints; reads only",
        "version": "evidence; reads only",
        "logs": "evidence and stories; reads only",
        "exec": "reads a container's environment inside it",
    },
}

# Programs that `exec` may run in containers and nodes.
READERS: Final = frozenset({"cat", "printenv", "journalctl", "ctr"})

# Programs and verbs that change nothing.
READ_ONLY: Final = {
    "docker": {"ps", "version", "info", "image", "exec"},
    "kubectl": {"api-resources", "get", "logs", "exec", "version"},
    "git": {"rev-parse", "status"},
    "kind": {"get", "--version"},
    "go": {"version"},
    "kubeadm": {"config"},
    "apt-get": {"indextargets"},
    "flock": {"true"},
    # Its tests change the cluster and restore it; their result is the verdict.
    "python": {"pytest"},
}

# module → why its tasks may report no change.
UNCHANGED: Final = {
    "ansible.builtin.uri": "asks a registry whether it answers",
    "kubernetes.core.k8s": "only in check mode: asks what the API server would make of a pod",
}

# program and verb → why it always reports a change: the task only runs if there is something to do.
CHANGED: Final = {
    ("go", "build"): "runs where a program is missing",
    ("mv", "--target-directory"): "runs after the node image is packed",
    ("kind", "create"): "runs where there is no cluster",
    ("kind", "export"): "runs where the kubeconfig is not the cluster's",
    ("kind", "load"): "runs where a node lacks an image",
    ("docker", "start"): "runs where nodes are stopped",
    ("docker", "rm"): "runs where there are containers",
    ("docker", "network"): "runs where the network is there, came with the cluster, and nobody uses it",
    ("apt-get", "update"): "runs where a program is not in the cache",
    ("apt-get", "download"): "runs where a program is not in the cache",
    ("dpkg-deb", "--extract"): "runs where a program is not in the cache",
    ("docker", "create"): "runs where kubectl is not in the cache",
    ("docker", "cp"): "runs where kubectl is not in the cache",
    ("python", "tests.cluster.healing.own_engine"): "makes an engine, or takes it back",
    ("python", "tests.cluster.existing.scenario"): "makes a cluster, or removes it",
}

# Waits without a k8s module, and how they report a failure.
REPORTED_OTHERWISE: Final = {
    "kind_cluster": "the API server may not answer: its module tells which node is not ready, a failed task says it",
    "container_engine": "there is no cluster yet: a failed task shows the end of the engine's log",
}


def verb(task: Task) -> str:
    """Return the first word after the program that the table knows; empty if the program has no verb."""
    words, known = task.argv()[1:], ALLOWED.get(task.program(), {})
    return next((word for word in words if word in known), "")


@pytest.mark.parametrize("task", COMMANDS, ids=str)
def test_only_listed_programs_run(task: Task) -> None:
    """Each command is a program of the table with one of its verbs; inside a container only reading programs run."""
    assert verb(task) in ALLOWED.get(task.program(), {}), task.argv()
    if verb(task) == "exec":
        assert READERS & set(task.argv()), task.argv()


def test_no_shell_runs_and_every_listed_program_is_used() -> None:
    """No task uses shell, raw or script; every program and verb of the table is used."""
    used = {(task.program(), verb(task)) for task in COMMANDS}
    listed = {(program, each) for program, verbs in ALLOWED.items() for each in verbs}

    assert [str(task) for task in TASKS if re.search(r"\b(shell|raw|script|expect)$", task.module)] == []
    assert listed - used == set()


@pytest.mark.parametrize("task", [task for task in COMMANDS if task.module == COMMAND], ids=str)
def test_command_says_what_it_changes(task: Task) -> None:
    """Each command has a changed_when, or names the file that it creates."""
    arguments = task.arguments if isinstance(task.arguments, dict) else {}

    assert "changed_when" in task.data or {"creates", "removes"} & set(arguments)


@pytest.mark.parametrize("task", [task for task in TASKS if "changed_when" in task.data], ids=str)
def test_change_is_denied_and_claimed_only_where_listed(task: Task) -> None:
    """Only listed readers have `changed_when: false`; only tasks that run if there is work have `true`."""
    reported = task.data["changed_when"]
    if task.module in (COMMAND, "parallel_command"):
        reads = verb(task) in READ_ONLY.get(task.program(), set())
        assert reported is False if reads else reported is not False
        assert reported is not True or (task.program(), verb(task)) in CHANGED
    elif reported is False:
        assert task.module in UNCHANGED
        assert task.module != "kubernetes.core.k8s" or task.data.get("check_mode") is True
    else:
        # In check mode this task replaces the one that is skipped.
        assert reported is not True or task.data["name"].startswith("Tell what a run would ")


@pytest.mark.parametrize("task", [task for task in COMMANDS if task.module == "parallel_command"], ids=str)
def test_questions_only_read(task: Task) -> None:
    """The module for parallel commands never reports a change, so it runs only readers."""
    assert verb(task) in READ_ONLY[task.program()]


WAITING: Final = [
    task
    for task in TASKS
    # Neither async_status, which waits for a job of the same run, nor apt, which waits for a lock of this host.
    if task.role
    and task.module not in {"ansible.builtin.async_status", "ansible.builtin.apt"}
    and (
        "until" in task.data
        or task.module == "admission_probe"
        or "'wait': True" in str(task.arguments)
        or (task.module == "applied_objects" and "wait_timeout" in task.arguments)
    )
]


@pytest.mark.parametrize("task", WAITING, ids=str)
def test_failed_wait_ends_in_a_report(task: Task) -> None:
    """A role that waits for the cluster rescues the wait, reports events and logs of what failed, and fails."""
    ours = [each for each in TASKS if each.role == task.role]
    if task.role in REPORTED_OTHERWISE:
        assert any(each.module == "ansible.builtin.fail" for each in ours)
        return
    file = task.file.rpartition("/")[2]
    rescued = {
        each.arguments for each in ours if each.rescued and each.module.endswith(("import_tasks", "include_tasks"))
    }

    if task.module == "applied_objects" and "subjects" in task.arguments:
        assert task.arguments["failure"]
        return
    assert task.rescued or file in rescued
    assert any(each.module == "failure_report" for each in ours)


INTERRUPTED: Final = sorted(
    {
        found.groups()
        for path in (ROOT / "tests/cluster").rglob("*.py")
        for found in re.finditer(r'"TASK \[(\w+) : ([^"\d]+)', path.read_text(encoding="utf-8"))
    }
)


@pytest.mark.parametrize(("role", "start"), INTERRUPTED)
def test_task_that_a_scenario_interrupts_exists(role: str, start: str) -> None:
    """Scenarios wait for a task by the first words of its name; they would never find a renamed one."""
    assert [task for task in TASKS if task.role == role and str(task.data.get("name", "")).startswith(start)]


PACKAGES: Final = [task for task in TASKS if task.module == "ansible.builtin.apt"]
# What apt, dpkg and the module say; whether the next try can help.
LOCKED: Final = {
    "Failed to lock apt for exclusive operation: Failed to lock directory /var/lib/apt/lists/: E:Could not get lock "
    "/var/lib/apt/lists/lock. It is held by process 1 (apt-get)": True,
    "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (unattended-upgr)": True,
    "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)": False,
    "No package matching 'docker.io' is available": False,
}


@pytest.mark.parametrize("task", PACKAGES, ids=str)
def test_a_busy_package_manager_is_waited_for(task: Task) -> None:
    """A machine's own updates hold dpkg's lock for minutes after its start; any other failure ends the task at once."""
    ends = Environment(autoescape=True).from_string(
        "{{ " + str(task.data["until"]).replace(" is succeeded", ".ok") + " }}"
    )
    tries = {said: ends.render({task.data["register"]: {"ok": False, "msg": said}}) == "False" for said in LOCKED}

    assert tries == LOCKED
    assert ends.render({task.data["register"]: {"ok": True}}) == "True"
    assert task.data["retries"] * task.data["delay"] >= 10 * 60
    assert task.arguments["lock_timeout"] == 0
