"""The program of a cold start's floor: our own, which reads of its lists only the pod that waits, and that pod's node.

Run with `python -m` in the place of `gpu_scheduler`; the variable NODE names the node. Everything else arrives as it
always does, is unpacked and cut into objects, and left at that.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar
from unittest.mock import patch

from gpu_scheduler.cli.main import main
from gpu_scheduler.kube.reflector import Reflector

if TYPE_CHECKING:
    import msgspec

T = TypeVar("T")

MODULE: Final = "bench.contenders.minimal_lists"
NODE: Final = "NODE"


class MinimalReflector(Reflector[T]):
    """A reflector that skips whatever is bound, and all nodes but one."""

    node: ClassVar = b""
    """How that one says its name."""

    def _read_into(self, found: dict[str, T], raw: msgspec.Raw) -> None:
        text = bytes(raw)
        if self.node in text if self._resource.name == "nodes" else b'"nodeName"' not in text:
            super()._read_into(found, raw)


if __name__ == "__main__":
    # As the API server writes it: its JSON has no spaces.
    MinimalReflector.node = f'"name":"{os.environ[NODE]}"'.encode()
    with patch("gpu_scheduler.process.reflectors.Reflector", MinimalReflector):
        main()
