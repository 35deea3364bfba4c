"""Which claims are prepared, and with which devices, in a file beside the kubelet's socket.

LAW: a claim is in the file before the kubelet gets an answer about it, and until the kubelet has given it up. What the
file says is never guessed: if it cannot be read, the driver does not start.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from gpu_scheduler.driver.files import write_whole
from gpu_scheduler.kube.objects.decoding import UNREADABLE

if TYPE_CHECKING:
    from pathlib import Path

FORMAT: Final = 1
"""The version of the file's format. It grows when an older program could read the file wrongly."""
MOST: Final = 4096
"""Most claims that are prepared at once."""
_LONGEST: Final = 2**24
"""Most bytes of the file: MOST claims of a usual size have 2 MB."""
_PRIVATE: Final = 0o600
_SHARED: Final = 0o750


class CheckpointError(Exception):
    """The file cannot be used, or another driver uses it; the text says what helps."""


class PreparedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device that a claim has, by its name in the ResourceSlice."""

    name: str
    requests: tuple[str, ...]
    admin: bool = False


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim that is prepared, since when (RFC 3339), and its devices."""

    uid: str
    namespace: str
    name: str
    since: str
    devices: tuple[PreparedDevice, ...]

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    claims: Annotated[list[PreparedClaim], msgspec.Meta(max_length=MOST)]


_files = msgspec.json.Decoder(_File)


class Checkpoint:
    """The claims that are prepared. Every change is written before a method returns."""

    def __init__(self, file: Path) -> None:
        """Read the file; without one, nothing is prepared. CheckpointError if it cannot be read."""
        self._file = file
        self._claims = {claim.uid: claim for claim in _read(file)}

    def __len__(self) -> int:
        return len(self._claims)

    def get(self, uid: str) -> PreparedClaim | None:
        """Return the prepared claim with this uid, or None."""
        return self._claims.get(uid)

    def holder_of(self, device: str, *, but: str) -> PreparedClaim | None:
        """Return the claim that has the device without admin access, other than the one with uid `but`."""
        for claim in self._claims.values():
            if claim.uid != but and any(each.name == device and not each.admin for each in claim.devices):
                return claim
        return None

    def put(self, claim: PreparedClaim) -> None:
        """Store the claim. CheckpointError if there are too many, or if the file cannot be written."""
        if claim.uid not in self._claims and len(self._claims) >= MOST:
            raise CheckpointError(f"{MOST} claims are prepared on this node, the most that there may be")
        self._write({**self._claims, claim.uid: claim})

    def remove(self, uid: str) -> None:
        """Remove a claim. CheckpointError if the file cannot be written."""
        self._write({key: claim for key, claim in self._claims.items() if key != uid})

    def _write(self, claims: dict[str, PreparedClaim]) -> None:
        """Write the file, then take over `claims`."""
        content = msgspec.json.encode({"format": FORMAT, "claims": list(claims.values())})
        try:
            write_whole(self._file, content, _PRIVATE)
        except OSError as error:
            raise CheckpointError(f"cannot write {self._file}: {error.strerror or error}") from error
        self._claims = claims


def _read(file: Path) -> list[PreparedClaim]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_LONGEST)
        # A longer file is cut, and so it cannot be decoded.
        return _files.decode(content).claims
    except FileNotFoundError:
        return []
    except (OSError, *UNREADABLE) as error:
        raise CheckpointError(
            f"cannot read {file}, which says what devices containers have: {error}; restore it, or remove it when no "
            f"pod of this node uses a claim (example: kubectl drain NODE --ignore-daemonsets, then rm {file})"
        ) from error


def open_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint of the folder, for this process alone until it ends.

    CheckpointError if another process has it, or if folder or file cannot be used.
    """
    try:
        folder.mkdir(mode=_SHARED, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise CheckpointError(
            f"cannot use {folder}: another driver runs on this node, and must end first (example: kubectl get pods "
            "--all-namespaces --field-selector=spec.nodeName=NODE)"
        ) from error
    except OSError as error:
        raise CheckpointError(
            f"cannot use {folder}: {error.strerror or error}; it must be below the kubelet's root directory "
            "(example: KUBELET_DIR=/var/lib/kubelet)"
        ) from error
    return Checkpoint(folder / "prepared.json")
