"""Devices, objects and files of the driver's tests."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from gpu_scheduler.driver.devices import OwnDevice, PublishedDevices
from gpu_scheduler.driver.ports import Cdi, CdiError
from tests import objects
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tests.objects import Object

DRIVER: Final = "gpu.agentaflow.io"
NODE: Final = "node1"


def own(index: int, **fields: Any) -> OwnDevice:
    return OwnDevice(index, objects.gpu(index), **fields)


def name(index: int) -> str:
    return own(index).name


def listed(*indices: int) -> PublishedDevices:
    return PublishedDevices(tuple(own(index) for index in indices))


def claim(name: str, *results: Object, uid: str | None = None) -> Object:
    """Return a ResourceClaim of namespace default that has these allocation results."""
    allocation = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    return {"metadata": {"namespace": "default", "name": name, "uid": uid or f"uid-{name}"}, "status": allocation}


def result(index: int, request: str = "gpu", **fields: Any) -> Object:
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": name(index), **fields}


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a directory with a short name: a socket's path has at most 107 characters."""
    made = Path(tempfile.mkdtemp(prefix="driver"))
    yield made
    shutil.rmtree(made)


async def call(socket: Path, method: str, asked: Any, answer: Any) -> Any:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        ask = channel.unary_unary(
            f"/{method}", request_serializer=type(asked).SerializeToString, response_deserializer=answer.FromString
        )
        return await ask(asked, timeout=limit(5))


def sockets(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_socket()]


def inode(file: Path) -> int | None:
    """Return what tells a file that was written anew from the one before; None if there is none."""
    return file.stat().st_ino if file.exists() else None


class NamedCdi(Cdi):
    """Names every device but those in `unknown`, and records what is declared."""

    def __init__(self, *unknown: int) -> None:
        """The runtime does not know the devices with the indices `unknown`."""
        self.declared: list[tuple[OwnDevice, ...]] = []
        self._unknown = unknown

    def declare(self, devices: Collection[OwnDevice]) -> None:
        self.declared.append(tuple(devices))

    def name_of(self, device: OwnDevice) -> str:
        if device.index in self._unknown:
            raise CdiError(f"no CDI spec names {device.uuid}")
        return f"test/gpu={device.index}"
