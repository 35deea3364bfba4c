"""`make down` removes what the same inventory created, and nothing else: on a host that records calls."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.contracts.host import NAME, PORT, Host, kubeconfig, nodes, without
from tests.contracts.roles import ROOT

DESTROY: Final = "playbooks/destroy.yml"
CONTEXT: Final = f"kind-{NAME}"
OURS: Final = (CONTEXT, f"https://127.0.0.1:{PORT}")
OTHERS: Final = (
    ("kind-other", "https://127.0.0.1:40002"),
    ("prod", "https://prod.example.com"),
    ("kind-gpu-scheduler-2", "https://127.0.0.1:40003"),
    ("gpu-scheduler", "https://10.0.0.1:6443"),
)
ELSEWHERE: Final = "/home/somebody/gpu-scheduler"
RM: Final = f"docker rm --force --volumes {NAME}-control-plane {NAME}-worker"
UP: Final = ("site.yml", "--tags", "kind_cluster")
BOOT: Final = Path("/proc/sys/kernel/random/boot_id").read_text()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host on which nothing runs yet."""
    return Host(tmp_path)


@pytest.mark.promise("down-2")
@pytest.mark.parametrize(
    ("answers", "options"),
    [
        pytest.param(True, (), id="the engine runs"),
        pytest.param(False, (), id="the engine that we started has stopped"),
        pytest.param(True, ("--check",), id="check mode"),
    ],
)
def test_existing_inventory_touches_nothing_of_this_host(
    host: Host, *, answers: bool, options: tuple[str, ...]
) -> None:
    """`make down INVENTORY=inventory/existing` calls no program, edits no file, and fails with the reason.

    A kind cluster of the same name runs on the host, and the user's own kubeconfig has its context.
    """
    host.containers, host.answers = nodes(ROOT, network=True), answers
    host.marker.write_text(f"detached {BOOT}")
    host.kubeconfig.write_text(kubeconfig(OURS, *OTHERS, current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(DESTROY, "existing", *options, kube_context="prod")

    assert run.calls == []
    assert host.kubeconfig.read_bytes() == before
    assert host.marker.exists()
    assert run.status != 0
    assert "Cannot take down cluster prod: cluster_provider is existing" in run.output
    assert "Nothing was changed" in run.output
    assert "changed=0" in run.output


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


@pytest.mark.promise("down-1", "down-4")
@pytest.mark.parametrize("options", [(), ("--check",)], ids=["", "in check mode"])
def test_kind_inventory_removes_its_own_cluster_alone(host: Host, options: tuple[str, ...]) -> None:
    """Of two clusters one is removed, of five contexts one.

    Kind's network stays while the other's stopped nodes use it.
    """
    other = nodes(ELSEWHERE, name="gpu-scheduler-2", port="40003", running=False)
    host.containers = {**nodes(ROOT, network=True), **other}
    text = kubeconfig(OURS, *OTHERS, current="prod")
    host.kubeconfig.write_text(text)

    run = host.play(DESTROY, "kind", *options)

    assert run.status == 0, run.output
    assert run.changes() == ([] if options else [RM])
    assert yaml.safe_load(host.kubeconfig.read_text()) == without(text, [] if options else [CONTEXT])
    assert set(other) <= host.left()


@pytest.mark.promise("down-1")
def test_last_cluster_takes_network_and_kubeconfig_with_it(host: Host) -> None:
    """A network that was created with the cluster is removed with it, and so is a kubeconfig without other entries."""
    host.containers = nodes(ROOT, network=True)
    host.kubeconfig.write_text(kubeconfig(OURS, current=CONTEXT))

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == [RM, "docker network rm kind"]
    assert not host.kubeconfig.exists()


@pytest.mark.promise("down-1")
def test_network_that_was_there_before_stays(host: Host) -> None:
    """A network called kind that existed before the cluster stays, even without containers."""
    host.containers = nodes(ROOT)

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == [RM]


@pytest.mark.promise("down-3")
@pytest.mark.parametrize(
    ("playbook", "made_by", "reported"),
    [
        pytest.param((DESTROY,), ELSEWHERE, f"It was made by {ELSEWHERE}", id="down, made by another checkout"),
        pytest.param((DESTROY,), "", f"kind delete cluster --name {NAME}", id="down, made by hand"),
        pytest.param(UP, ELSEWHERE, f"It was made by {ELSEWHERE}", id="up, made by another checkout"),
    ],
)
def test_cluster_of_the_same_name_that_others_made_is_left_alone(
    host: Host, playbook: tuple[str, ...], made_by: str, reported: str
) -> None:
    """Its stopped nodes are not removed, started or replaced; the run fails and names the cluster's origin."""
    host.containers = nodes(made_by, network=True, running=False)
    host.kubeconfig.write_text(kubeconfig((CONTEXT, "https://127.0.0.1:40009"), *OTHERS, current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(playbook[0], "kind", *playbook[1:])

    assert run.status != 0
    assert run.changes() == []
    assert host.kubeconfig.read_bytes() == before
    assert f"Cannot touch cluster {NAME}: this checkout" in run.output
    assert reported in run.output


@pytest.mark.promise("down-4")
def test_context_of_the_same_name_is_not_written_over(host: Host) -> None:
    """If a context with our cluster's name belongs to another host, `make up` fails: kind would overwrite it."""
    host.kubeconfig.write_text(kubeconfig((CONTEXT, "https://gpu.example.com"), current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(UP[0], "kind", *UP[1:])

    assert run.status != 0
    assert run.changes() == []
    assert host.kubeconfig.read_bytes() == before
    assert "leads to https://gpu.example.com, and a kind cluster is on this host" in run.output


def test_cluster_of_an_older_version_is_known_by_the_kubeconfig(host: Host) -> None:
    """Nodes without a mark are ours if the inventory's kubeconfig has their address; their network stays."""
    host.containers = nodes()
    text = kubeconfig(OURS, OTHERS[1], current="prod")
    host.kubeconfig.write_text(text)

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == [RM]
    assert yaml.safe_load(host.kubeconfig.read_text()) == without(text, [CONTEXT])


@pytest.mark.promise("down-4")
def test_context_of_the_same_name_that_leads_elsewhere_stays(host: Host) -> None:
    """A context kind-NAME of another cluster stays, byte for byte, while our cluster is removed."""
    host.containers = nodes(ROOT)
    host.kubeconfig.write_text(kubeconfig((CONTEXT, "https://gpu.example.com"), *OTHERS, current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == [RM]
    assert host.kubeconfig.read_bytes() == before
    assert "it leads to https://gpu.example.com" in run.output


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


def test_other_name_leaves_the_cluster_of_this_one(host: Host) -> None:
    """An inventory with another cluster_name does not remove the cluster that the same checkout created before."""
    host.containers = nodes(ROOT, network=True)
    host.kubeconfig.write_text(kubeconfig(OURS, current=CONTEXT))
    before = host.kubeconfig.read_bytes()

    run = host.play(DESTROY, "kind", cluster_name="gpu-scheduler-2")

    assert run.status == 0, run.output
    assert run.changes() == []
    assert host.kubeconfig.read_bytes() == before


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
    assert run.changes()[0] == RM
    assert [call[: len(stopped)] for call in run.changes()[1:]] == ([stopped] if stopped else [])
