"""`make bump-kubernetes`: one version for what is built and what is pulled, or a sentence and no change."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.loading import load
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

command = load("requirements", "bump_kubernetes.py")

DIGEST: Final = "sha256:" + "ab" * 32
OTHER_DIGEST: Final = "sha256:" + "cd" * 32
# Nothing listens there.
NOWHERE: Final = "http://127.0.0.1:9"

GO_MOD: Final = """\
module gpu-scheduler.invalid/kubernetes

go 1.26.8

require k8s.io/kubernetes v1.40.1 // indirect

replace k8s.io/api => k8s.io/api v0.40.1

replace k8s.io/removed => k8s.io/removed v0.40.1

tool (
	k8s.io/kubernetes/cmd/kubectl
)
"""

# A Go toolchain whose module proxy serves two versions of Kubernetes. It says what it does as Go does.
GO: Final = """\
#!{python}
import json, pathlib, re, sys
match sys.argv[1:]:
    case ["version"]:
        print("go version go1.27.1 linux/amd64")
    case ["mod", "download", "-json", module]:
        version = module.partition("@")[2]
        if version not in ("v1.40.2", "v1.41.0"):
            print(json.dumps({{"Path": "k8s.io/kubernetes", "Error": f"{{module}}: not found"}}))
            sys.exit(1)
        file = pathlib.Path(sys.argv[0]).with_name("released.mod")
        staging = "".join(f"\\tk8s.io/{{name}} => ./staging/src/k8s.io/{{name}}\\n" for name in ("api", "added"))
        file.write_text(f"module k8s.io/kubernetes\\n\\ngo {needed}\\n\\nreplace (\\n{{staging}})\\n")
        print(json.dumps({{"GoMod": str(file)}}))
    case ["get", *libraries]:
        pathlib.Path("go.mod").write_text("module gpu-scheduler.invalid/coredns\\n" + "\\n".join(libraries))
    case ["mod", "tidy"] if pathlib.Path("main.go").exists():
        pathlib.Path("go.sum").write_text("sums of " + pathlib.Path("go.mod").read_text())
    case ["mod", "tidy"]:
        (version,) = re.findall(r"require k8s.io/kubernetes (v\\S+)", pathlib.Path("go.mod").read_text())
        if version == "v1.41.0":
            sys.exit("go: checksum mismatch")
        pathlib.Path("go.sum").write_text(f"sums of {{version}}")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with version 1.40.1, on a host with a fake Go and an empty cache."""
    made = tmp_path / "files" / "kubernetes"
    made.mkdir(parents=True)
    (made / "go.mod").write_text(GO_MOD)
    (made / "go.sum").write_text("sums of v1.40.1")
    (made / "pulled-image").write_text(f"kindest/node:v1.40.1@{OTHER_DIGEST}\n")
    coredns = made.with_name("coredns")
    coredns.mkdir()
    for name in ("go.mod", "go.sum", "main.go"):
        (coredns / name).write_text(f"{name} of v1.40.1")
    install_go(tmp_path / "bin", "1.26.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def install_go(folder: Path, needed: str) -> None:
    """Install the fake Go; the versions that its proxy serves need Go `needed`."""
    folder.mkdir(exist_ok=True)
    (folder / "go").write_text(GO.format(python=sys.executable, needed=needed))
    (folder / "go").chmod(0o755)


def content(folder: Path) -> dict[str, str]:
    """Return the text of each file below the folder's parent."""
    return {
        str(path.relative_to(folder.parent)): path.read_text() for path in folder.parent.rglob("*") if path.is_file()
    }


@contextmanager
def serving(versions: dict[str, str], *, token: str = "") -> Iterator[str]:
    """Yield the address of a registry with these versions of kindest/node; with a token it gives it to everybody."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            version = self.path.removeprefix("/v2/kindest/node/manifests/")
            if token and self.headers["Authorization"] != f"Bearer {token}":
                self.send_response(401)
                realm = f'Bearer realm="http://{self.headers["Host"]}/token",service="hub",scope="repository:kindest/node:pull"'
                self.send_header("WWW-Authenticate", realm)
            elif version not in versions:
                self.send_response(404)
            else:
                self.send_response(200)
                self.send_header("Docker-Content-Digest", versions[version])
            self.end_headers()

        def do_GET(self) -> None:
            assert self.path == "/token?service=hub&scope=repository%3Akindest%2Fnode%3Apull"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"token": token}).encode())

        def log_message(self, *_: object) -> None:
            """Keep the tests' output free of requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_version_and_digest_change_together(folder: Path) -> None:
    """The modules, their sums and the pulled image have the new version; staging modules are those of that version."""
    output = command.bump("1.40.2", DIGEST, NOWHERE, folder)

    go_mod = (folder / "go.mod").read_text()
    assert output.startswith(f"Kubernetes v1.40.1 -> v1.40.2; nodes that are pulled: kindest/node:v1.40.2@{DIGEST}.")
    assert "require k8s.io/kubernetes v1.40.2 // indirect\n" in go_mod
    assert "replace k8s.io/api => k8s.io/api v0.40.2\n\nreplace k8s.io/added => k8s.io/added v0.40.2\n" in go_mod
    assert "removed" not in go_mod
    assert "go 1.26.8\n" in go_mod
    assert "tool (\n\tk8s.io/kubernetes/cmd/kubectl\n)\n" in go_mod
    assert (folder / "go.sum").read_text() == "sums of v1.40.2"
    assert (folder / "pulled-image").read_text() == f"kindest/node:v1.40.2@{DIGEST}\n"
    assert set(content(folder)) == {
        *("kubernetes/go.mod", "kubernetes/go.sum", "kubernetes/pulled-image"),
        *("coredns/go.mod", "coredns/go.sum", "coredns/main.go"),
    }


def test_coredns_is_built_with_the_libraries_of_that_version(folder: Path) -> None:
    """What both use is compiled once. Its own program stays."""
    command.bump("1.40.2", DIGEST, NOWHERE, folder)

    libraries = "\n".join(f"k8s.io/{name}@v0.40.2" for name in ("api", "apimachinery", "client-go"))
    files = content(folder)
    assert files["coredns/go.mod"] == f"module gpu-scheduler.invalid/coredns\n{libraries}"
    assert files["coredns/go.sum"] == f"sums of {files['coredns/go.mod']}"
    assert files["coredns/main.go"] == "main.go of v1.40.1"


@pytest.mark.parametrize("token", ["", "anonymous"], ids=["open", "with tokens for everybody"])
def test_digest_comes_from_the_registry(folder: Path, token: str) -> None:
    """Without DIGEST the registry's digest of the tag is written, and the user is asked to compare it."""
    with serving({"v1.40.2": DIGEST}, token=token) as registry:
        output = command.bump("v1.40.2", "", registry, folder)

    assert (folder / "pulled-image").read_text() == f"kindest/node:v1.40.2@{DIGEST}\n"
    assert "Compare the digest" in output


def test_present_version_changes_nothing_and_needs_no_network(folder: Path, tmp_path: Path) -> None:
    """A second run does nothing, without Go and without a registry."""
    (tmp_path / "bin" / "go").unlink()
    before = content(folder)

    assert command.bump("1.40.1", "", NOWHERE, folder) == "Kubernetes is v1.40.1 already: nothing to do."
    assert content(folder) == before


@pytest.mark.parametrize("written", [("go.sum",), ("go.sum", "pulled-image")], ids=" and ".join)
def test_interrupted_run_is_completed_by_the_next(folder: Path, tmp_path: Path, written: tuple[str, ...]) -> None:
    """A run that ended between two of its files is done again: go.mod, which is written last, has the old version."""
    complete = tmp_path / "complete" / "kubernetes"
    shutil.copytree(folder.parent, complete.parent)
    command.bump("1.40.2", DIGEST, NOWHERE, complete)
    for name in written:
        shutil.copy(complete / name, folder / name)
    command.bump("1.40.2", DIGEST, NOWHERE, folder)

    assert content(folder) == content(complete)


# version, digest, whether the registry answers → the sentence.
REFUSED: Final = {
    "a word": ("abc", "", True, "cannot use V=abc: a released version of Kubernetes has three numbers (example: make"),
    "a version that we do not support": (
        "1.29.9",
        "",
        True,
        "cannot use V=1.29.9: gpu-scheduler needs Kubernetes 1.30 or",
    ),
    "a version that nobody released": (
        *("1.40.99", DIGEST, True),
        "cannot use V=v1.40.99: the Go module proxy serves no k8s.io/kubernetes v1.40.99 (k8s.io/kubernetes@v1.40.99:",
    ),
    "a digest that is none": (
        "1.40.2",
        "sha256:12",
        True,
        "cannot use DIGEST=sha256:12: a digest is sha256: and 64 hex",
    ),
    "no digest and no registry": (
        "1.40.2",
        "",
        False,
        f"cannot find the digest of kindest/node:v1.40.2, because {NOWHERE}",
    ),
    "sums that differ": ("1.41.0", DIGEST, True, "cannot run go mod tidy: go: checksum mismatch"),
}


@pytest.mark.parametrize(("version", "digest", "answers", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_named_and_nothing_changes(
    folder: Path, version: str, digest: str, sentence: str, *, answers: bool
) -> None:
    """A wrong value, or one that cannot be had, ends in one sentence; no file changes and none is left."""
    before = content(folder)
    with serving({}) as registry, pytest.raises(command.RefusedError) as refused:
        command.bump(version, digest, registry if answers else NOWHERE, folder)

    assert sentence in str(refused.value)
    assert content(folder) == before


def test_this_checkout_is_at_its_own_version() -> None:
    """The rule's text reads the real files: their own version needs no change."""
    version = command.built_version((command.FOLDER / "go.mod").read_text())

    assert command.FOLDER.is_relative_to(ROOT)
    assert command.bump(version, "", NOWHERE) == f"Kubernetes is {version} already: nothing to do."
