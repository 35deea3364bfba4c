"""Describes devices to the container runtime: the driver does it itself, or NVIDIA's toolkit has done it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler import names
from gpu_scheduler.driver.files import write_whole
from gpu_scheduler.driver.ports import Cdi, CdiError
from gpu_scheduler.kube.objects.decoding import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from gpu_scheduler.driver.devices import OwnDevice

VERSION: Final = "0.5.0"
"""The version of the CDI specification that the file follows."""
MOST_SPECS: Final = 64
"""Most CDI specs of a directory that are read."""
LONGEST_SPEC: Final = 2**22
"""Most bytes of a CDI spec that is read."""
_PUBLIC: Final = 0o644
_ENDINGS: Final = (".json", ".yaml")
"""The endings of files that a runtime reads."""


class SimulatedCdi(Cdi):
    """Writes a CDI spec in which each device is a device node of its own.

    The runtime makes the node from its numbers, so the host needs none.
    """

    def __init__(self, folder: Path, major: int) -> None:
        """`folder` is read by the runtime. `major` is the major number of the device nodes."""
        self._file = folder / f"{names.DRA_DRIVER}.json"
        self._major = major
        self._content = b""
        self._declared: frozenset[str] = frozenset()
        """The UUIDs in the content."""

    def declare(self, devices: Collection[OwnDevice]) -> None:
        """Implement Cdi.declare. The file is written if its content differs."""
        described = [{"name": each.uuid, "containerEdits": {"deviceNodes": [self._node(each)]}} for each in devices]
        spec = {"cdiVersion": VERSION, "kind": names.SIMULATED_CDI_KIND, "devices": described}
        self._content, self._declared = msgspec.json.encode(spec), frozenset(each.uuid for each in devices)
        self._write()

    def name_of(self, device: OwnDevice) -> str:
        """Implement Cdi.name_of. A file that is gone is written again."""
        if device.uuid not in self._declared:
            raise CdiError(f"the CDI spec {self._file} does not have {device.uuid} yet")
        self._write()
        return f"{names.SIMULATED_CDI_KIND}={device.uuid}"

    def _node(self, device: OwnDevice) -> dict[str, object]:
        path = f"/dev/nvidia{device.index}"
        return {"path": path, "type": "c", "major": self._major, "minor": device.index, "permissions": "rw"}

    def _write(self) -> None:
        try:
            if not self._file.exists() or self._file.read_bytes() != self._content:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self._file, self._content, _PUBLIC)
        except OSError as error:
            raise CdiError(f"cannot write the CDI spec {self._file}: {error.strerror or error}") from error


class _Named(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    kind: str
    devices: list[_Named]


class NvidiaCdi(Cdi):
    """Finds the devices in the CDI specs that NVIDIA's container toolkit has written."""

    def __init__(self, *folders: Path) -> None:
        """`folders` are read by the runtime."""
        self._folders = folders

    def declare(self, devices: Collection[OwnDevice]) -> None:
        """Implement Cdi.declare: the toolkit does it."""

    def name_of(self, device: OwnDevice) -> str:
        """Implement Cdi.name_of. The specs are read each time, because the toolkit may write them at any time."""
        if not any(device.uuid in found for folder in self._folders for found in _described(folder)):
            raise CdiError(
                f"no CDI spec in {' or '.join(map(str, self._folders))} names {names.NVIDIA_CDI_KIND}={device.uuid}; "
                f"write one on the node (example: nvidia-ctk cdi generate --output={self._folders[0] / 'nvidia.yaml'})"
            )
        return f"{names.NVIDIA_CDI_KIND}={device.uuid}"


def _described(folder: Path) -> Iterator[frozenset[str]]:
    """Yield the names of NVIDIA's devices in each spec of the folder. A file that cannot be read describes none."""
    try:
        files = sorted(each for each in folder.iterdir() if each.suffix in _ENDINGS)
    except OSError:
        return
    for file in files[:MOST_SPECS]:
        try:
            with file.open("rb") as opened:
                content = opened.read(LONGEST_SPEC)
            # JSON is YAML too, but its own decoder is a hundred times faster.
            decode = msgspec.json.decode if file.suffix == ".json" else msgspec.yaml.decode
            spec = decode(content, type=_Spec)
        except (OSError, *UNREADABLE):
            continue
        if spec.kind == names.NVIDIA_CDI_KIND:
            yield frozenset(each.name for each in spec.devices)
