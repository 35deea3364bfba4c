"""`make down` removes what the same inventory created, and nothing else: on a host that records calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.contracts.host import (
    BOOT,
    CONTEXT,
    DESTROY,
    NAME,
    OTHERS,
    OURS,
    REMOVAL,
    Host,
    kubeconfig,
    nodes,
    without,
)
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ELSEWHERE: Final = "/home/somebody/gpu-scheduler"
UP: Final = ("site.yml", "--tags", "kind_cluster")


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


@pytest.mark.promise("down-1", "down-4")
@pytest.mark.parametrize(
    "options",
    [pytest.param((), id=""), pytest.param(("--check",), id="in check mode", marks=pytest.mark.plays)],
)
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
    assert run.changes() == ([] if options else [REMOVAL])
    assert yaml.safe_load(host.kubeconfig.read_text()) == without(text, [] if options else [CONTEXT])
    assert set(other) <= host.left()
    said = f"Check mode: nothing was removed, and cluster {NAME} stays." if options else f"Cluster {NAME} is gone"
    assert said in run.output


@pytest.mark.promise("down-1")
def test_last_cluster_takes_network_and_kubeconfig_with_it(host: Host) -> None:
    """A network that was created with the cluster is removed with it, and so is a kubeconfig without other entries."""
    host.containers = nodes(ROOT, network=True)
    host.kubeconfig.write_text(kubeconfig(OURS, current=CONTEXT))

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == [REMOVAL, "docker network rm kind"]
    assert not host.kubeconfig.exists()


@pytest.mark.promise("down-1")
def test_network_that_was_there_before_stays(host: Host) -> None:
    """A network called kind that existed before the cluster stays, even without containers."""
    host.containers = nodes(ROOT)

    run = host.play(DESTROY, "kind")

    assert run.status == 0, run.output
    assert run.changes() == [REMOVAL]


@pytest.mark.promise("down-3")
@pytest.mark.parametrize(
    ("playbook", "made_by", "reported"),
    [
        pytest.param((DESTROY,), ELSEWHERE, f"It was made by {ELSEWHERE}", id="down, made by another checkout"),
        pytest.param(
            (DESTROY,),
            "",
            f"kind delete cluster --name {NAME}",
            id="down, made by hand",
            marks=pytest.mark.plays,
        ),
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


# A kubectl that finds one policy of this version, and nothing else.
KUBECTL: Final = """#!/bin/sh
case "$*" in
  *--filename=-*) echo '{"items": [{
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {
      "name": "gpu-scheduler-rights", "uid": "1", "labels": {"app.kubernetes.io/part-of": "gpu-scheduler"}}}]}' ;;
  *) echo "Error from server (NotFound): $*" >&2; exit 1 ;;
esac
"""


@pytest.mark.plays
def test_check_mode_of_a_rollback_says_that_nothing_was_deleted(host: Host, tmp_path: Path) -> None:
    """It names what would be deleted, and does not say that nothing hinders the older version."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)

    run = host.play(
        "playbooks/prepare_rollback.yml", "existing", "--check", kube_context="prod", kubectl_program=str(kubectl)
    )

    assert run.status == 0, run.output
    assert "ValidatingAdmissionPolicy gpu-scheduler-rights" in run.output
    assert "Check mode: nothing was deleted." in run.output
    assert "Nothing hinders" not in run.output
