"""Plays on hosts in rarer states: no engine, one that we started, a cluster of an older version or of another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.host import BOOT, CONTEXT, DESTROY, OTHERS, OURS, REMOVAL, Host, kubeconfig, nodes
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.plays


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host on which nothing runs yet."""
    return Host(tmp_path)


@pytest.mark.parametrize("playbook", ["status", "verify"])
def test_status_and_verify_of_an_existing_cluster_run_kubectl_alone(host: Host, playbook: str) -> None:
    """`make status` and `make verify` start no engine and edit nothing on this host, whatever the cluster answers."""
    host.containers, host.answers = nodes(ROOT), False
    host.marker.write_text(f"detached {BOOT}")
    host.kubeconfig.write_text(kubeconfig(OURS, *OTHERS, current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(f"playbooks/{playbook}.yml", "existing", kube_context="prod")

    assert run.calls
    assert {call[0] for call in run.calls} == {"kubectl"}
    assert run.changes() == []
    assert host.kubeconfig.read_bytes() == before


def test_nothing_is_removed_where_no_engine_answers(host: Host) -> None:
    """If the engine does not answer, its cluster may still exist and keeps its kubeconfig."""
    host.answers = False
    host.kubeconfig.write_text(kubeconfig(OURS, current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == []
    assert host.kubeconfig.read_bytes() == before
    assert "No container engine answers, so nothing was removed" in run.output


STOP: Final = "start-stop-daemon --stop --oknodo --retry TERM/30/KILL/5 --pidfile"


@pytest.mark.parametrize(
    ("marker", "others", "stopped"),
    [
        pytest.param(f"detached {BOOT}", False, STOP, id="we started it"),
        pytest.param(f"systemd {BOOT}", False, "systemctl stop docker", id="we started it by systemd"),
        pytest.param(f"detached {BOOT}", True, "", id="we started it and others run in it"),
        pytest.param("systemd 2d2e-of-an-earlier-boot\n", False, "", id="systemd started it when the host booted"),
    ],
)
def test_engine_is_stopped_only_where_we_started_it(host: Host, marker: str, stopped: str, *, others: bool) -> None:
    """The engine is stopped only if we started it and no container is left in it."""
    host.containers = {**nodes(ROOT), **(nodes(name="gpu-scheduler-2") if others else {})}
    engine = host.folder / "engine"
    if marker:
        (engine / "started").write_text(marker)

    # An engine of our own is identified by its folder: its socket is used by no other program.
    run = host.play(DESTROY, "kind", engine_dir=str(engine))

    assert run.status == 0, run.output
    assert run.changes()[0] == REMOVAL
    assert [call[: len(stopped)] for call in run.changes()[1:]] == ([stopped] if stopped else [])


LIMITS: Final = """
- hosts: localhost
  tasks:
    - ansible.builtin.import_role: {name: kind_cluster, tasks_from: limits}
"""
FILES: Final = "fs.inotify.max_user_instances"


@pytest.mark.parametrize(
    ("limits", "raised", "said"),
    [
        pytest.param(
            {FILES: 512, "kernel.osrelease": 99},
            True,
            'because this user may not raise it: a second cluster on this host may end with "too many open files".',
            id="the kernel permits one of them",
        ),
        pytest.param(
            {"vm.overcommit_memory": 77}, False, "Invalid argument", id="a value that the kernel does not know"
        ),
    ],
)
def test_limits_are_raised_without_sysctl_and_those_that_stay_are_named(
    host: Host, limits: dict[str, int], said: str, *, raised: bool
) -> None:
    """A minimal host has no procps. Only a refusal of the right is let pass, and it is said."""
    proc = host.folder / "sys"
    (proc / "fs" / "inotify").mkdir(parents=True)
    (proc / "fs" / "inotify" / "max_user_instances").write_text("128\n")
    for folder in ("kernel", "vm"):
        (proc / folder).symlink_to(f"/proc/sys/{folder}")
    playbook = host.folder / "limits.yml"
    playbook.write_text(LIMITS)

    run = host.play(str(playbook), "kind", _kind_cluster_proc=str(proc), _kind_cluster_limits=limits)

    assert (run.status == 0) is raised, run.output
    assert said in run.output
    assert f"{FILES} stays" not in run.output
    assert run.calls == []
    assert (proc / "fs" / "inotify" / "max_user_instances").read_text().strip() == ("512" if raised else "128")
