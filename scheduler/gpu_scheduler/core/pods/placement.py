"""Where a pod goes and what it sees there, and what a Binding writes of it."""

from dataclasses import dataclass

from gpu_scheduler import names


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes and what it sees there.

    `node` is a real name, `devices` come in the order in which CUDA is to number them, `index` is the map line's; None
    when a strategy chose.
    """

    node: str
    devices: tuple[str, ...]
    index: int | None
    uuids: tuple[str, ...] | None = None
    """Of the devices, in their order, where they are known."""

    @property
    def value(self) -> str:
        """The devices as CUDA_VISIBLE_DEVICES spells them; empty means no GPU."""
        return ",".join(self.devices)

    @property
    def annotations(self) -> dict[str, str]:
        """What the Binding must carry, so that node, devices and index become durable in one write.

        The ledger reads it back.
        """
        known = {} if self.uuids is None else {names.ASSIGNED_UUIDS: ",".join(self.uuids)}
        if self.index is not None:
            known[names.ASSIGNED_INDEX] = str(self.index)
        return {names.ASSIGNED_DEVICES: self.value, names.ASSIGNED_NODE: self.node, **known}
