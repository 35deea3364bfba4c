"""An OCI runtime that wraps runc, for hosts whose kernel withholds capabilities from root.

`docker run --privileged` requests every capability. If the bounding set lacks one, runc refuses the container ("unable
to apply caps: operation not permitted"). This runtime removes from the request what the host cannot grant, and then
executes runc. It adds nothing, so no container gains a right that it did not request.

Standard library only: the engine starts it with the bare interpreter.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Sorted by their numbers in linux/capability.h.
CAPABILITIES = tuple(
    """
    CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID CAP_SETPCAP
    CAP_LINUX_IMMUTABLE CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_IPC_OWNER
    CAP_SYS_MODULE CAP_SYS_RAWIO CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_PACCT CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_NICE
    CAP_SYS_RESOURCE CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_MKNOD CAP_LEASE CAP_AUDIT_WRITE CAP_AUDIT_CONTROL CAP_SETFCAP
    CAP_MAC_OVERRIDE CAP_MAC_ADMIN CAP_SYSLOG CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_AUDIT_READ CAP_PERFMON CAP_BPF
    CAP_CHECKPOINT_RESTORE
    """.split()  # noqa: SIM905 - one a line would fill a screen
)

# The options of runc's commands that name the file of the request, and the file's name in a bundle.
BUNDLE = ({"--bundle", "-b"}, "config.json")
PROCESS = ({"--process", "-p"}, "")
REQUESTS = {"create": BUNDLE, "run": BUNDLE, "exec": PROCESS}


def granted(status: str) -> frozenset[str]:
    """Return the capabilities in the bounding set of /proc/self/status, given as text."""
    line = next(line for line in status.splitlines() if line.startswith("CapBnd:"))
    mask = int(line.split()[1], 16)
    return frozenset(name for bit, name in enumerate(CAPABILITIES) if mask >> bit & 1)


def request_file(arguments: Sequence[str]) -> Path | None:
    """Return the file of the container's request; None if this call starts no process."""
    options, inside = next((REQUESTS[word] for word in arguments if word in REQUESTS), (set(), ""))
    path = next(_values(arguments, options), None)
    return Path(path) / inside if path else None


def _values(arguments: Sequence[str], options: set[str]) -> Iterator[str]:
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in options:
            yield value if equals else following


def trimmed(request: dict[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    """Return the request without what the host cannot grant: capabilities, and an OOM score below its own."""
    process = dict(request.get("process", request))
    # An exec without the key inherits the container's set; an empty set would remove every capability.
    if process.get("capabilities"):
        process["capabilities"] = {
            kind: [name for name in names if name in allowed] for kind, names in process["capabilities"].items()
        }
    if process.get("oomScoreAdj", 0) < 0:
        process["oomScoreAdj"] = 0
    return {**request, "process": process} if "process" in request else process


def main(arguments: Sequence[str]) -> None:
    """Trim the request, if this call has one, and execute runc."""
    file = request_file(arguments)
    if file is not None and file.is_file():
        request = json.loads(file.read_text())
        file.write_text(json.dumps(trimmed(request, granted(Path("/proc/self/status").read_text()))))
    os.execv(shutil.which("runc") or "/usr/sbin/runc", ["runc", *arguments])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(sys.argv[1:])
