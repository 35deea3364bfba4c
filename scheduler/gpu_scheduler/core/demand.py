"""What a pod takes of its node beside GPUs: processor, memory, other counted resources, and ports of the host.

LAW: whole numbers, as kube-scheduler counts them: `cpu` in thousandths of a core, everything else in its own unit
(bytes, pieces), rounded up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what Kubernetes calls "every address of the host"


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node: one protocol, one address or every one."""

    protocol: str
    address: str
    port: int

    def __str__(self) -> str:
        """As people write it: `8080/TCP`, with the address where it is not every one."""
        if self == EVERY_PORT:
            return "every port"
        where = "" if self.address == ANY_ADDRESS else f"{self.address}:"
        return f"{where}{self.port}/{self.protocol}"

    def overlaps(self, other: "HostPort") -> bool:
        """Whether one host cannot give both."""
        if EVERY_PORT in {self, other}:
            return True
        return (self.protocol, self.port) == (other.protocol, other.port) and (
            self.address == other.address or ANY_ADDRESS in {self.address, other.address}
        )


EVERY_PORT: Final = HostPort("", ANY_ADDRESS, 0)
"""What a pod counts as having that has more ports than are kept one by one."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one pod takes: `requests` by resource name, without zeroes, and ports of the host."""

    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    ports: frozenset[HostPort] = frozenset()


NOTHING: Final = Demand()
