"""How devices are described to the container runtime."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.driver.cdi import NvidiaCdi, SimulatedCdi
from gpu_scheduler.driver.ports import CdiError
from tests import objects
from unit_tests.driver.parts import own

if TYPE_CHECKING:
    from pathlib import Path

TOOLKIT = f"""\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: {objects.gpu(0)}
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
"""


def spec_of(folder: Path) -> Any:
    return json.loads((folder / "gpu.agentaflow.io.json").read_text())


def test_each_simulated_device_is_a_device_node(tmp_path: Path) -> None:
    """Its numbers are given, so that the runtime needs no device on the host."""
    cdi = SimulatedCdi(tmp_path / "cdi", 120)
    cdi.declare((own(0), own(3)))

    assert spec_of(tmp_path / "cdi") == {
        "cdiVersion": "0.5.0",
        "kind": "agentaflow.io/gpu",
        "devices": [
            {
                "name": objects.gpu(index),
                "containerEdits": {
                    "deviceNodes": [
                        {"path": f"/dev/nvidia{index}", "type": "c", "major": 120, "minor": index, "permissions": "rw"}
                    ]
                },
            }
            for index in (0, 3)
        ],
    }
    assert cdi.name_of(own(3)) == f"agentaflow.io/gpu={objects.gpu(3)}"
    assert (tmp_path / "cdi" / "gpu.agentaflow.io.json").stat().st_mode & 0o777 == 0o644


def test_the_spec_is_written_only_when_it_changes(tmp_path: Path) -> None:
    """And again where it is gone: the directory is emptied when the machine starts."""
    file = tmp_path / "gpu.agentaflow.io.json"
    cdi = SimulatedCdi(tmp_path, 120)
    cdi.declare((own(0),))
    first = file.stat().st_ino
    cdi.declare((own(0),))
    cdi.name_of(own(0))
    assert file.stat().st_ino == first
    file.unlink()
    cdi.name_of(own(0))
    assert len(spec_of(tmp_path)["devices"]) == 1
    cdi.declare((own(0), own(1)))
    assert len(spec_of(tmp_path)["devices"]) == 2


def test_a_spec_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """It names the file."""
    (tmp_path / "cdi").write_text("")

    with pytest.raises(CdiError, match=r"^cannot write the CDI spec .*/cdi/gpu\.agentaflow\.io\.json: "):
        SimulatedCdi(tmp_path / "cdi", 120).declare((own(0),))


def test_a_device_that_is_not_declared_yet_has_no_name(tmp_path: Path) -> None:
    """A restarted driver knows no devices at first. What the file has stays."""
    SimulatedCdi(tmp_path, 120).declare((own(0),))
    restarted = SimulatedCdi(tmp_path, 120)

    with pytest.raises(CdiError, match=rf"^the CDI spec .* does not have {objects.gpu(0)} yet$"):
        restarted.name_of(own(0))
    assert len(spec_of(tmp_path)["devices"]) == 1
    restarted.declare((own(0),))
    assert restarted.name_of(own(0)) == f"agentaflow.io/gpu={objects.gpu(0)}"


DESCRIBED: dict[str, tuple[dict[str, str], bool]] = {
    "no directory has a spec": ({}, False),
    "the toolkit's spec as YAML": ({"run/nvidia.yaml": TOOLKIT}, True),
    "the toolkit's spec as JSON, in the other directory": (
        {"etc/nvidia.json": json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": objects.gpu(0)}]})},
        True,
    ),
    "a spec with other devices": ({"run/nvidia.yaml": TOOLKIT.replace(objects.gpu(0), objects.gpu(1))}, False),
    "a spec of another kind": ({"run/other.yaml": TOOLKIT.replace("nvidia.com/gpu", "example.com/gpu")}, False),
    "a file that no runtime reads": ({"run/nvidia.txt": TOOLKIT}, False),
    "a file that cannot be read, before the toolkit's": (
        {"run/a.yaml": "kind: [", "run/b.json": "{", "run/nvidia.yaml": TOOLKIT},
        True,
    ),
}


@pytest.mark.parametrize(("written", "known"), DESCRIBED.values(), ids=DESCRIBED)
def test_a_device_must_be_in_a_spec_of_the_toolkit(tmp_path: Path, written: dict[str, str], known: bool) -> None:  # noqa: FBT001 - a table's column
    """Otherwise the container could not start. The sentence has the command that writes the spec."""
    for name, content in written.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    cdi = NvidiaCdi(tmp_path / "run", tmp_path / "etc")
    cdi.declare((own(0),))

    if known:
        assert cdi.name_of(own(0)) == f"nvidia.com/gpu={objects.gpu(0)}"
    else:
        with pytest.raises(CdiError, match=r"^no CDI spec in .* or .* names nvidia\.com/gpu=GPU-0.*nvidia-ctk cdi gen"):
            cdi.name_of(own(0))
    assert not (tmp_path / "run" / "gpu.agentaflow.io.json").exists()
