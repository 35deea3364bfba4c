"""Redeploys parts: the evidence alone, and a code change, which rolls out only what it changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cluster import plays
from tests.cluster.clusters import CHECK, HOME, ROOT, SYSTEM, TESTS, Cluster
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PRODUCT: Final = "app.kubernetes.io/name=gpu-scheduler"


def _pods(cluster: Cluster, namespace: str, selector: str) -> dict[str, tuple[str, int]]:
    """Return the pods that are not terminating: name → uid and how often its containers were restarted."""
    pods = cluster.get("pods", "-n", namespace, "-l", selector)["items"]
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"]["containerStatuses"]),
        )
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def _scheduler_image(cluster: Cluster) -> str:
    template: dict[str, Any] = cluster.get("deployment", "-n", SYSTEM, "gpu-scheduler")["spec"]["template"]
    image: str = template["spec"]["containers"][0]["image"]
    return image


@pytest.mark.promise("up-4")
def test_evidence_is_captured_anew_when_asked() -> None:
    """The proof is unchanged, so only the tag makes the run write the evidence again: the old content is replaced."""
    pods = HOME / "evidence" / "pods.txt"
    pods.write_text("a list of yesterday\n")
    run = plays.run(*plays.SITE, "--tags", "evidence").succeeded()

    assert {"evidence"} == set(run.changed)
    assert f"{CHECK}-0" in pods.read_text()
    assert "a list of yesterday" not in pods.read_text()


@pytest.fixture
def edited_checkout(tmp_path: Path) -> Path:
    """Return a copy of the checkout in which one line of the scheduler differs."""
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    copy = tmp_path / "checkout"
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    with (copy / "scheduler" / "gpu_scheduler" / "__init__.py").open("a") as module:
        module.write("# A change of one line.\n")
    return copy


@pytest.fixture
def redeploy(cluster: Cluster, edited_checkout: Path) -> Iterator[Callable[[], plays.Run]]:
    """Return a function that deploys the edited scheduler; restore the checkout's own afterwards."""
    before = _scheduler_image(cluster)

    def deploy() -> plays.Run:
        return plays.run(
            *plays.SITE,
            *("-e", f"kubeconfig={HOME}/config", "-e", f"evidence_dir={HOME}/evidence"),
            *("--tags", "images,scheduler"),
            cwd=edited_checkout,
            environment={"ANSIBLE_CONFIG": os.fspath(edited_checkout / "ansible.cfg")},
        )

    yield deploy
    edited = _scheduler_image(cluster)
    restored = plays.run(*plays.SITE, "--tags", "images,scheduler").succeeded()
    # The former image still exists, so nothing is built or loaded.
    assert {"scheduler"} == set(restored.changed)
    assert before == _scheduler_image(cluster)
    subprocess.run(("docker", "image", "rm", edited), check=True, capture_output=True)


@pytest.mark.promise("lead-4")
def test_code_change_rolls_out_the_scheduler_alone(
    cluster: Cluster, redeploy: Callable[[], plays.Run], make_pod: Callable[..., dict[str, Any]]
) -> None:
    """A change of the scheduler's code replaces its pods and no others; the new scheduler places the next pod."""
    cluster.create(make_pod("bystander-0", "0=node3:6"))
    cluster.kubectl("wait", "--for=condition=Ready", "-n", TESTS, "pod/bystander-0", "--timeout=60s")
    # The pod holds its GPU and is no observer: the new scheduler must learn from the API server that GPU 6 is held.
    stay = (
        ("default", f"app.kubernetes.io/name={CHECK}"),
        (TESTS, ""),
        (SYSTEM, f"{PRODUCT},app.kubernetes.io/component=webhook"),
    )
    untouched = [_pods(cluster, *where) for where in stay]
    replaced = _pods(cluster, SYSTEM, f"{PRODUCT},app.kubernetes.io/component=scheduler")
    image = _scheduler_image(cluster)
    run = redeploy().succeeded()

    assert {"images", "scheduler"} == set(run.changed)
    assert image != _scheduler_image(cluster)
    assert not set(replaced) & set(_pods(cluster, SYSTEM, f"{PRODUCT},app.kubernetes.io/component=scheduler"))
    assert untouched == [_pods(cluster, *where) for where in stay]

    cluster.create(make_pod("rival-0", "0=node3:6\n1=node3:7"))
    condition = eventually(
        "rival-0 to have its reason",
        lambda: (
            cluster.condition(TESTS, "rival-0").get("message", "").startswith("GpuHeld: ")
            and cluster.condition(TESTS, "rival-0")
        ),
    )

    assert f"{TESTS}/bystander-0" in condition["message"]
