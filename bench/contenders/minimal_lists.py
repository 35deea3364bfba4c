"""The program of contender F in W6: our scheduler, which parses only the waiting pod and that pod's node.

Run with `python -m` in place of `gpu_scheduler`; the variable NODE names the node. All other objects are received and
cut apart as usual, but not parsed.
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
    """A reflector that ignores bound pods, and all nodes but one."""

    node: ClassVar = b""
    """The name of that node as JSON."""

    def _read_into(self, found: dict[str, T], raw: msgspec.Raw) -> None:
        text = bytes(raw)
        if self.node in text if self._resource.name == "nodes" else b'"nodeName"' not in text:
            super()._read_into(found, raw)


if __name__ == "__main__":
    # The API server's JSON has no spaces.
    MinimalReflector.node = f'"name":"{os.environ[NODE]}"'.encode()
    with patch("gpu_scheduler.process.reflectors.Reflector", MinimalReflector):
        main()
