"""Debian or Ubuntu as installed, with git, make, python3 and python3-venv: what README.md says a machine must have.

A `Machine` is a root file system made by debootstrap, in namespaces of its own for mounts, processes and the network.
Nothing of it outlives its first process, and it shares neither engine nor network interfaces with the host. Needs root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.contracts.roles import ROOT
from tests.integration.programs import CACHE
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES: Final = ("git", "make", "python3", "python3-venv", "ca-certificates")
ABSENT: Final = ("docker", "dockerd", "debootstrap", "sudo", "ps", "sysctl", "gpg", "locale-gen", "curl", "ip", "go")
OF_UBUNTU: Final = ("ps", "sysctl")
"""Programs of these that every Ubuntu has."""
ROOTS: Final = CACHE / "bare"
"""Packed root file systems."""
MACHINES: Final = CACHE.with_name("gpu-scheduler-bare")
"""Unpacked ones, on the file system of the cache, so that its files can be linked."""
CHECKOUT: Final = "/root/gpu-scheduler"
CACHE_THERE: Final = "/root/.cache/gpu-scheduler"
UBUNTU: Final = ("noble",)
"""Suites of Ubuntu. Debian's debootstrap has neither their keys nor, for new ones, their scripts: all are the same."""
UBUNTU_MIRROR: Final = "http://archive.ubuntu.com/ubuntu"
UBUNTU_SECURITY: Final = "http://security.ubuntu.com/ubuntu"
# What is cloned. An older commit shows what failed there (example: BARE_COMMIT=9332e1e make test-suite SUITE=bare).
COMMIT: Final = os.environ.get("BARE_COMMIT", "HEAD")
# 198.18.0.0/15 is for tests of networks (RFC 2544), so no host is there.
HOST, ADDRESS = "198.18.41.1", "198.18.41.2"
INTERFACE: Final = "gpu-bare"
# Let through the host what the machine sends, with the host's address, and the answers.
RULES: Final = (
    ("nat", "POSTROUTING", "-s", ADDRESS, "-j", "MASQUERADE"),
    ("filter", "FORWARD", "-i", INTERFACE, "-j", "ACCEPT"),
    ("filter", "FORWARD", "-o", INTERFACE, "-j", "ACCEPT"),
)
LONGEST: Final = 1800.0
"""Seconds after which a command is ended: against hangs."""
HOST_CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
# How this host reaches package indexes. A user's machine has none of them, or its own.
INDEXES: Final = re.compile(
    r"PIP_(CERT|DEFAULT_TIMEOUT|(EXTRA_)?INDEX_URL|TRUSTED_HOST)|SSL_CERT_FILE|GOPROXY|GOSUMDB|(?i:https?|no)_proxy"
)
WAITING: Final = "sleep infinity & wait"
# Makes a machine of the root $1. Of the other arguments, each pair is a folder of the host and its place in the root.
# Not chroot: `docker exec` enters the root of a mount namespace, which would be the host's. A shell becomes the first
# process, because it reaps what the engine leaves behind.
FIRST: Final = f"""
set -eu
root=$1; shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount --types proc proc "$root/proc"
for each in sys dev; do mount --rbind "/$each" "$root/$each"; done
for each in run tmp; do mount --types tmpfs tmpfs "$root/$each"; done
while [ $# -gt 0 ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
cd "$root"
pivot_root . mnt
umount --lazy mnt
exec sh -c '{WAITING}'
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command has left: its exit status, its output, and its seconds."""

    code: int
    output: str
    seconds: float

    def succeeded(self) -> Done:
        """Return this; raise with its output if it failed."""
        assert self.code == 0, self.output[-6000:]
        return self


@dataclass(frozen=True, slots=True)
class Machine:
    """A running machine: its root file system, and the process id of its first process."""

    root: Path
    pid: int

    def run(self, command: str, *, user: int = 0, seconds: float = LONGEST, **environment: str) -> Done:
        """Run a command of the shell in the checkout, as a user with this number, with nothing of our environment."""
        given = {
            "HOME": "/root" if user == 0 else "/tmp",  # noqa: S108 - the machine's own
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "TERM": "xterm",
            **{name: value for name, value in os.environ.items() if INDEXES.fullmatch(name)},
            **environment,
        }
        enter = ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--root", "--wd")
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
        words = ("env", "-i", *(f"{name}={value}" for name, value in given.items()), *become, "sh", "-c")
        began = time.monotonic()
        done = subprocess.run(
            (*enter, *words, f"cd {CHECKOUT} && {command}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit(seconds),
            check=False,
        )
        seconds = time.monotonic() - began
        sys.stdout.write(f"\n$ {command}\n{done.stdout}({seconds:.0f} s, exit status {done.returncode})\n")
        return Done(done.returncode, done.stdout, seconds)

    @property
    def absent(self) -> tuple[str, ...]:
        """The programs that it must not have."""
        return tuple(name for name in ABSENT if self.root.name not in UBUNTU or name not in OF_UBUNTU)

    def has(self, program: str) -> bool:
        """Return whether the program is found."""
        return self.run(f"command -v {shlex.quote(program)}").code == 0

    def processes(self) -> list[str]:
        """Return the names of the processes, but for those of every machine: the first two, and the shell that asks."""
        names = self.run("cat /proc/[0-9]*/comm").output.split()
        for each in ("sh", "sleep", "sh"):
            names.remove(each)
        return names


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit(600), check=False)
    assert done.returncode == 0, f"{shlex.join(words)}: {(done.stdout + done.stderr)[-3000:]}"


def packed(suite: str) -> Path:
    """Return the packed root file system of a suite of Debian or Ubuntu; make it first if it is not in the cache."""
    archive = ROOTS / f"{suite}.tar"
    if archive.exists():
        return archive
    ROOTS.mkdir(parents=True, exist_ok=True)
    root = ROOTS / f".{suite}"
    shutil.rmtree(root, ignore_errors=True)
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    if suite in UBUNTU:
        mirror, security, components = UBUNTU_MIRROR, UBUNTU_SECURITY, "main universe"
        words += ("--no-check-gpg", "--components=main,universe", suite, str(root), mirror, "gutsy")
    else:
        mirrors = _mirrors()
        mirror = mirrors.get("Debian", "http://deb.debian.org/debian")
        security = mirrors.get("Debian-Security", "http://security.debian.org/debian-security")
        components = "main"
        words += (suite, str(root), mirror)
    _run(*words)
    sources = ((mirror, suite), (mirror, f"{suite}-updates"), (security, f"{suite}-security"))
    (root / "etc/apt/sources.list").write_text("".join(f"deb {uri} {name} {components}\n" for uri, name in sources))
    _run("tar", f"--directory={root}", f"--file={archive}.part", "--create", ".")
    Path(f"{archive}.part").rename(archive)
    shutil.rmtree(root)
    return archive


def _mirrors() -> dict[str, str]:
    """Return the first mirror of each archive that apt of this host names, as role node_image does."""
    words = ("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Identifier: Packages", "Component: main")
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return {label: uri.rstrip("/") for label, _, uri in (line.partition(" ") for line in reversed(listed.splitlines()))}


@contextmanager
def machine(suite: str, *, cold: bool = False) -> Iterator[Machine]:
    """Start a machine with a clone of this checkout, one at a time. A `cold` one is lent no cache.

    What another one builds into a cache without images stays for the next.
    """
    root = MACHINES / suite
    with ExitStack() as stack:
        archive = packed(suite)
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        stack.callback(shutil.rmtree, root)
        _run("tar", f"--directory={root}", f"--file={archive}", "--extract")
        _lend_what_reaches_the_network(root)
        _run("git", "clone", "--quiet", str(ROOT), f"{root}{CHECKOUT}")
        _run("git", "-C", f"{root}{CHECKOUT}", "checkout", "--quiet", COMMIT)
        mounts = () if cold else _lend_cache(root)
        # Where the host has images, those that a test has built again would take the place of its own.
        if not cold and not any(CACHE.glob("images/*.tar")):
            stack.callback(_link_images, Path(f"{root}{CACHE_THERE}"), CACHE)
        words = ("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child")
        first = subprocess.Popen((*words, "sh", "-c", FIRST, "first", str(root), *mounts), stdin=subprocess.DEVNULL)
        stack.callback(first.wait)
        stack.callback(first.kill)
        pid = eventually("the machine has started", lambda: _started(first.pid), 20)
        stack.enter_context(_connected(pid))
        yield Machine(root, pid)


def _started(unshare: int) -> int:
    """Return the process id of the machine's first process once it waits; else 0."""
    for child in Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="ascii").split():
        if WAITING in Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8").split("\0"):
            return int(child)
    return 0


def _lend_what_reaches_the_network(root: Path) -> None:
    """Give the root this host's resolver, its trusted certificates, and what its apt takes from a mirror."""
    resolved = Path("/run/systemd/resolve/resolv.conf")
    shutil.copy(resolved if resolved.exists() else "/etc/resolv.conf", root / "etc/resolv.conf")
    if Path("/", HOST_CERTIFICATES).exists():
        shutil.copy(Path("/", HOST_CERTIFICATES), root / HOST_CERTIFICATES)
    dumped = subprocess.run(("apt-config", "dump"), check=True, capture_output=True, text=True).stdout
    kept = [line for line in dumped.splitlines() if line.startswith(("Acquire::Check-", "Acquire::http"))]
    (root / "etc/apt/apt.conf.d/99host").write_text("\n".join((*kept, "")))


def _lend_cache(root: Path) -> tuple[str, ...]:
    """Link what is in the cache into the root; return the folders to mount, each with its place there."""
    _link_images(CACHE, Path(f"{root}{CACHE_THERE}"))
    pip = CACHE.with_name("pip")
    for folder in (CACHE / "bin", pip):
        folder.mkdir(parents=True, exist_ok=True)
    return (str(CACHE / "bin"), f"{CACHE_THERE}/bin", str(pip), "/root/.cache/pip")


def _link_images(source: Path, dest: Path) -> None:
    """Link the packed images and wheels of a cache into another that lacks them. An engine's own records stay."""
    (dest / "images").mkdir(parents=True, exist_ok=True)
    for entry in (*source.glob("images/*.tar"), *source.glob("images/*.sha256"), *source.glob("images/wheelhouse-*")):
        linked = dest / "images" / entry.name
        if linked.exists():
            continue
        if entry.is_dir():
            shutil.copytree(entry, linked, copy_function=os.link)
        else:
            linked.hardlink_to(entry)


@contextmanager
def _connected(pid: int) -> Iterator[None]:
    """Connect the machine with the host's network by a pair of interfaces."""
    inside = ("nsenter", f"--target={pid}", "--net", "ip")
    # A run that was killed has left them.
    _delete_rules()
    _run("ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    _run("ip", "address", "add", f"{HOST}/30", "dev", INTERFACE)
    _run("ip", "link", "set", INTERFACE, "up")
    _run(*inside, "link", "set", "lo", "up")
    _run(*inside, "address", "add", f"{ADDRESS}/30", "dev", "eth0")
    _run(*inside, "link", "set", "eth0", "up")
    _run(*inside, "route", "add", "default", "via", HOST)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
    for table, chain, *rest in RULES:
        _run("iptables", "-t", table, "-I", chain, *rest)
    try:
        yield
    finally:
        _delete_rules()


def _delete_rules() -> None:
    for table, chain, *rest in RULES:
        command = ("iptables", "-t", table, "-D", chain, *rest)
        while subprocess.run(command, capture_output=True, check=False).returncode == 0:
            pass
