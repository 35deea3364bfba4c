"""The files of examples/: values for AKS, and CI pipelines to copy."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.contracts import roles

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = roles.ROOT / "examples"
PIPELINES: Final = {path.name: path for path in sorted((FOLDER / "ci").iterdir())}
EXAMPLES: Final = ("registry.example.com",)
TAG: Final = r"v?\d+\.\d+\.\d+"


def test_aks_values_are_those_of_its_inventory() -> None:
    """Helm and `make deploy-aks` place the check pods alike."""
    values = roles.read("examples", "aks-values.yaml")
    facts = roles.read("inventory", "aks", "group_vars", "all", "facts.yml")

    assert values == {
        "podAnnotations": {"gpu-scheduling-map": facts["gpu_scheduling_map"]},
        "tolerations": facts["check_tolerations"],
    }


def test_deploy_aks_is_the_main_play_with_its_inventory() -> None:
    """The target passes ARGS on."""
    command = ("make", "--dry-run", "deploy-aks", "ARGS=-e kube_context=NAME -e image_registry=HOST/PATH")
    done = subprocess.run(command, cwd=roles.ROOT, capture_output=True, text=True, check=True)

    assert (
        "ansible-playbook --inventory inventory/aks site.yml -e kube_context=NAME -e image_registry=HOST/PATH"
    ) in done.stdout


def commands(pipeline: Any) -> Iterator[str]:
    """Yield each command of a pipeline."""
    if isinstance(pipeline, dict):
        for key, value in pipeline.items():
            if key in {"run", "script", "before_script", "after_script"}:
                yield from [value] if isinstance(value, str) else value
            else:
                yield from commands(value)
    elif isinstance(pipeline, list):
        for each in pipeline:
            yield from commands(each)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline_calls_what_exists(name: str) -> None:
    """Each make target, script, Dockerfile and build argument is one of the checkout."""
    text = PIPELINES[name].read_text()
    lines = list(commands(roles.read("examples", "ci", name)))
    targets = set(re.findall(r"^([a-z-]+):", (roles.ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    called = {target for line in lines for target in re.findall(r"\bmake ([a-z-]+)", line)}

    assert called == {"audit", "sbom"}
    assert called <= targets
    assert any(line.endswith(".ci/run") for line in lines)
    assert (roles.ROOT / ".ci" / "run").is_file()
    for file in ("Dockerfile", "Dockerfile.check"):
        assert re.search(rf"{re.escape(file)}\b", text)
        arguments = set(re.findall(r"^ARG (\w+)", (roles.ROOT / file).read_text(), flags=re.MULTILINE))
        assert set(re.findall(r"--build-arg (\w+)=", " ".join(lines))) <= arguments


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline_pins_what_it_uses(name: str) -> None:
    """Each action and image has the tag of one version, and no registry stands there but an example."""
    text = PIPELINES[name].read_text()
    used = re.findall(r"uses: (\S+)", text)

    assert all(re.fullmatch(rf"[\w./-]+@{TAG}", each) for each in used), used
    assert re.search(rf"aquasec/trivy:{TAG}\n", text)
    assert re.search(rf"tonistiigi/binfmt:qemu-{TAG}\n", text)
    assert ":latest" not in text
    assert set(re.findall(r"\b(?:[a-z0-9-]+\.)+(?:com|io|dev|org|net)\b", text)) <= set(EXAMPLES)
