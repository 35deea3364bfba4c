"""The verbs of the command line that change the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.installed import TEMPLATE, Installed
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.objects import gpu_workload
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads


@pytest.mark.promise("cli-4")
def test_the_strategy_is_set_for_the_running_scheduler(cli: Installed, populated: Namespace, running: Command) -> None:
    """The running scheduler uses the strategy, under its own field manager. An unknown strategy changes nothing."""
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/gpu-scheduler-settings"
    try:
        assert cli.run("gpu-scheduler", "strategy", "best_fit", "--no-headers").split()[0] == "best_fit"
        eventually(
            "the scheduler follows",
            lambda: running.metric('gpu_scheduler_strategy{strategy="best_fit"}') == 1,
        )

        settings = populated.kube.get(path)
        assert settings is not None
        assert settings["data"] == {"strategy": "best_fit"}
        assert [each["manager"] for each in settings["metadata"]["managedFields"]] == ["gpu-scheduler-strategy"]
        output = cli.refused("gpu-scheduler", "strategy", "fastest", code=2)
        assert output.startswith('cannot use strategy "fastest": ')
        assert "least_utilized, best_fit, " in output
        (shown,) = cli.items("strategy")
        assert (shown["name"], shown["source"]) == ("best_fit", "ConfigMap gpu-scheduler-settings")
    finally:
        populated.kube.delete(path)


@pytest.mark.promise("cli-3", "cli-8")
def test_submitted_workloads_are_placed(
    cli: Installed, populated: Namespace, workloads: Workloads, tmp_path: Path
) -> None:
    """One file has two workloads. Submitting it again changes nothing."""
    file = tmp_path / "work.yaml"
    bodies = [gpu_workload(name, TEMPLATE, gpuMemoryRequired=50000) for name in ("one", "two")]
    file.write_text(yaml.safe_dump_all(bodies), encoding="utf-8")

    printed = cli.run("gpu-scheduler", "submit", str(file), "--wait", "--timeout", "20s")

    placed = {name: workloads.status(name) for name in ("one", "two")}
    assert printed == "".join(
        f"gpuworkload.agentaflow.io/{name} placed on node2: GPU {','.join(status['devices'])}\n"
        for name, status in placed.items()
    )
    managers = {each["manager"] for each in workloads.read("one")["metadata"]["managedFields"]}
    assert managers == {"gpu-scheduler-cli", "gpu-scheduler-controller"}
    again = cli.run("kubectl", "gpu-scheduler", "submit", "-", given=file.read_text(encoding="utf-8"))
    assert again.splitlines() == [f"gpuworkload.agentaflow.io/{name} unchanged" for name in ("one", "two")]
    assert {name: workloads.status(name) for name in ("one", "two")} == placed


FAULTS: dict[str, tuple[Any, str]] = {
    "an unknown field": ({"gpus": 2}, ".spec.gpus; "),
    "a negative number": ({"gpuMemoryRequired": -1}, "HTTP 422: "),
    "an unknown strategy": ({"schedulingStrategy": "fastest"}, 'Unsupported value: "fastest"'),
}


@pytest.mark.promise("cli-2", "cli-3")
@pytest.mark.parametrize(("spec", "why"), FAULTS.values(), ids=FAULTS)
def test_a_file_with_an_invalid_document_creates_nothing(
    spec: Any, why: str, cli: Installed, workloads: Workloads, tmp_path: Path
) -> None:
    """The first document is valid, the second is not. No object of either is created."""
    file = tmp_path / "work.yaml"
    file.write_text(
        yaml.safe_dump_all([gpu_workload("good", TEMPLATE), gpu_workload("bad", TEMPLATE, **spec)]), encoding="utf-8"
    )

    output = cli.refused("gpu-scheduler", "submit", str(file), code=2)

    assert output.startswith(f"cannot submit document 2 (GPUWorkload bad) of {file}: ")
    assert why in output
    assert workloads.kube.call("GET", workloads.path)[1]["items"] == []
