"""The verbs that change the cluster, as processes before a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.installed import TEMPLATE, Installed, pods_of
from tests.objects import gpu_workload
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.workshop import Orders


@pytest.mark.promise("cli-4")
def test_the_strategy_is_set_for_the_running_scheduler(cli: Installed, town: Bench, running: Command) -> None:
    """Under a field manager of its own; it is followed within 2 s, and an unknown one changes nothing."""
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/gpu-scheduler-settings"
    try:
        assert cli.run("gpu-scheduler", "strategy", "best_fit", "--no-headers").split()[0] == "best_fit"
        eventually(
            "the scheduler follows",
            lambda: running.metric('gpu_scheduler_strategy{strategy="best_fit"}') == 1,
            seconds=2,
        )

        settings = town.kube.get(path)
        assert settings is not None
        assert settings["data"] == {"strategy": "best_fit"}
        assert [each["manager"] for each in settings["metadata"]["managedFields"]] == ["gpu-scheduler-strategy"]
        said = cli.refused("gpu-scheduler", "strategy", "fastest", code=2)
        assert said.startswith('cannot use strategy "fastest": it must be one of least_utilized, best_fit, ')
        (told,) = cli.items("strategy")
        assert (told["name"], told["source"]) == ("best_fit", "ConfigMap gpu-scheduler-settings")
    finally:
        town.kube.delete(path)


@pytest.mark.promise("cli-3", "cli-8")
def test_what_is_submitted_is_placed(cli: Installed, town: Bench, orders: Orders, tmp_path: Path) -> None:
    """One file, two workloads; submitted again, they are what they were."""
    file = tmp_path / "work.yaml"
    bodies = [gpu_workload(name, TEMPLATE, gpuMemoryRequired=50000) for name in ("one", "two")]
    file.write_text(yaml.safe_dump_all(bodies), encoding="utf-8")

    printed = cli.run("gpu-scheduler", "submit", str(file), "--wait", "--timeout", "20s")

    placed = {name: orders.status(name) for name in ("one", "two")}
    assert printed == "".join(
        f"gpuworkload.agentaflow.io/{name} placed on node2: GPU {','.join(status['devices'])}\n"
        for name, status in placed.items()
    )
    managers = {each["manager"] for each in orders.read("one")["metadata"]["managedFields"]}
    assert managers == {"gpu-scheduler-cli", "gpu-scheduler-controller"}
    again = cli.run("kubectl", "gpu-scheduler", "submit", "-", given=file.read_text(encoding="utf-8"))
    assert again.splitlines() == [f"gpuworkload.agentaflow.io/{name} configured" for name in ("one", "two")]
    assert {name: orders.status(name) for name in ("one", "two")} == placed


@pytest.mark.promise("cli-3")
def test_a_workload_that_no_gpu_suits_is_told(cli: Installed, town: Bench, orders: Orders, tmp_path: Path) -> None:
    """With the scheduler's own reason, which --wait prints when the time is over."""
    file = tmp_path / "work.yaml"
    file.write_text(yaml.safe_dump(gpu_workload("huge", TEMPLATE, gpuMemoryRequired=500000)), encoding="utf-8")
    orders_before = len(pods_of(town))

    said = cli.refused("gpu-scheduler", "submit", str(file), "--wait", "--timeout", "5s", code=1)

    assert said.startswith(
        f"cannot wait longer than 5 s for document 1 (GPUWorkload huge) of {file}: it is not placed: "
    )
    assert "InsufficientGpuMemory: " in said
    (told,) = [each for each in cli.items("workloads") if each["name"] == "huge"]
    assert (told["phase"], told["reason"]) == ("Pending", "InsufficientGpuMemory")
    assert len(pods_of(town)) == orders_before + 1


FAULTS: dict[str, tuple[Any, str]] = {
    "an unknown field": ({"gpus": 2}, ".spec.gpus: field not declared in schema"),
    "a negative number": ({"gpuMemoryRequired": -1}, "spec.gpuMemoryRequired"),
    "an unknown strategy": ({"schedulingStrategy": "fastest"}, 'Unsupported value: "fastest"'),
}


@pytest.mark.promise("cli-2", "cli-3")
@pytest.mark.parametrize(("spec", "why"), FAULTS.values(), ids=FAULTS)
def test_nothing_is_half_submitted(spec: Any, why: str, cli: Installed, orders: Orders, tmp_path: Path) -> None:
    """The first document is well, the second is not: neither becomes anything."""
    file = tmp_path / "work.yaml"
    file.write_text(
        yaml.safe_dump_all([gpu_workload("good", TEMPLATE), gpu_workload("bad", TEMPLATE, **spec)]), encoding="utf-8"
    )

    said = cli.refused("gpu-scheduler", "submit", str(file), code=2)

    assert said.startswith(f"cannot submit document 2 (GPUWorkload bad) of {file}: HTTP ")
    assert why in said
    assert orders.kube.call("GET", orders.path)[1]["items"] == []


@pytest.mark.promise("cli-6")
def test_the_template_can_be_submitted(cli: Installed, orders: Orders) -> None:
    """As it is printed."""
    text = cli.run("gpu-scheduler", "generate-template")

    cli.run("gpu-scheduler", "submit", "-", given=text)

    assert orders.read("my-workload")["spec"]["gpuRequirements"]["gpuCount"] == 1
