"""A kubeconfig leads the command line where it leads kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from gpu_scheduler.kube.config.kubeconfig_file import ClusterEntry, User, merged
from gpu_scheduler.kube.http.client import connect
from tests.integration.control_plane import ADMIN_TOKEN, ControlPlane
from tests.integration.programs import program
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.objects import Object

WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW: Final = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()


@pytest.fixture(scope="module")
def people() -> trustme.CA:
    """The authority of client certificates."""
    return trustme.CA()


@pytest.fixture(scope="module")
def strict(people: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows client certificates, too."""
    folder = tmp_path_factory.mktemp("strict")
    people.cert_pem.write_to_path(str(folder / "people.crt"))
    plane = ControlPlane(folder, f"--client-ca-file={folder / 'people.crt'}")
    yield plane
    plane.stop()


def certificate_data(people: trustme.CA, folder: Path) -> Object:
    # Go refuses a certificate without an identity: its empty list of names is critical.
    pair = people.issue_cert("me.example", common_name="by-certificate")
    return {
        "client-certificate-data": b64encode(pair.cert_chain_pems[0].bytes()).decode(),
        "client-key-data": b64encode(pair.private_key_pem.bytes()).decode(),
    }


def plugin(people: trustme.CA, folder: Path) -> Object:
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": ADMIN_TOKEN}}
    (folder / "plugin").write_text(f"#!{sys.executable}\nprint({json.dumps(credential)!r})\n", encoding="utf-8")
    (folder / "plugin").chmod(0o755)
    return {"exec": {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}}


def token_file(people: trustme.CA, folder: Path) -> Object:
    (folder / "token").write_text(f"{ADMIN_TOKEN}\n", encoding="utf-8")
    return {"tokenFile": "token"}


@pytest.mark.parametrize(
    ("user", "name"),
    [
        pytest.param(certificate_data, "by-certificate", id="by the data of a client certificate"),
        pytest.param(plugin, "admin", id="by a plugin"),
        pytest.param(token_file, "admin", id="by a token's file"),
    ],
)
async def test_the_api_server_knows_us(
    strict: ControlPlane, people: trustme.CA, tmp_path: Path, user: Callable[[trustme.CA, Path], Object], name: str
) -> None:
    """The same name as kubectl has."""
    file = strict.kubeconfig(tmp_path / "config", ADMIN_TOKEN)
    config = json.loads(file.read_text(encoding="utf-8"))
    config["users"] = [{"name": "test", "user": user(people, tmp_path)}]
    file.write_text(json.dumps(config), encoding="utf-8")

    api = await connect(str(file), None, user_agent="test")
    try:
        answer = await api.call("POST", WHO, body=REVIEW)
    finally:
        await api.close()

    assert json.loads(answer.body)["status"]["userInfo"]["username"] == name
    asked = await asyncio.to_thread(kubectl, str(file), "auth", "whoami", "-o", "json")
    assert json.loads(asked)["status"]["userInfo"]["username"] == name


def kubectl(paths: str, *words: str) -> str:
    done = subprocess.run(
        [program("kubectl"), *words],
        env={**os.environ, "KUBECONFIG": paths},
        capture_output=True,
        text=True,
        timeout=limit(30),
        check=True,
    )
    return done.stdout


FIRST: Final = """
clusters:
- name: a
  cluster: {server: "https://first", certificate-authority: ca.pem}
users:
- name: u
  user: {username: me, password: p, exec: null}
contexts:
- {name: c, context: {cluster: a, user: u}}
"""
SECOND: Final = """
current-context: d
clusters:
- name: a
  cluster: {server: "https://second", insecure-skip-tls-verify: true, proxy-url: "http://p"}
- name: b
  cluster: {server: "https://b", tls-server-name: x}
users:
- name: u
  user: {token: of-second, tokenFile: token}
contexts:
- {name: c, context: {cluster: b, user: u, namespace: ml}}
- {name: d, context: {cluster: b, user: u, namespace: ml}}
"""
HALF: Final = """
users:
- name: v
  user: {exec: {}}
"""
MERGES: Final[dict[str, tuple[str, ...]]] = {
    "one file": (SECOND,),
    "the first file says what a name means": (FIRST, SECOND),
    "in the other order": (SECOND, FIRST),
    "another user's plugin is half written": (FIRST, SECOND, HALF),
    "an empty current context counts as none": ('current-context: ""\n', "", FIRST, SECOND),
    "the current context is the first file's": ("current-context: c\n", FIRST, SECOND),
}


@pytest.mark.parametrize("files", MERGES.values(), ids=MERGES)
def test_files_are_merged_as_kubectl_merges_them(files: tuple[str, ...], tmp_path: Path) -> None:
    """Beside a file that does not exist."""
    paths = []
    for number, text in enumerate(files):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "config").write_text(text, encoding="utf-8")
        paths.append(str(tmp_path / str(number) / "config"))
    listed = os.pathsep.join(["/nowhere", *paths])
    ours = merged(listed)
    chosen = ours.contexts[ours.current or ""]
    cluster, user = ours.clusters[chosen.cluster or ""], ours.users[chosen.user or ""]

    seen = json.loads(kubectl(listed, "config", "view", "--minify", "--raw", "-o", "json"))
    (context,), (its_cluster,), (its_user,) = seen["contexts"], seen["clusters"], seen["users"]
    assert (seen["current-context"], context["context"].get("namespace")) == (ours.current, chosen.namespace)
    assert (its_cluster["name"], its_user["name"]) == (chosen.cluster, chosen.user)
    for theirs, part, kind in (
        (its_cluster["cluster"], cluster.part, ClusterEntry),
        (its_user["user"], user.part, User),
    ):
        values = {
            encoded: value
            for name, encoded in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
            if (value := getattr(part, name)) is not None
        }
        assert values == theirs


@pytest.mark.parametrize("part", ["clusters", "users", "contexts"])
def test_two_parts_of_one_name_are_refused_as_by_kubectl(part: str, tmp_path: Path) -> None:
    """Which of them was meant is unknown."""
    file = tmp_path / "config"
    file.write_text(json.dumps({part: [{"name": "a"}, {"name": "a"}]}), encoding="utf-8")

    with pytest.raises(ValueError, match=f'"a" is the name of two {part} '):
        merged(str(file))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        kubectl(str(file), "config", "view")
    assert "duplicate name" in refused.value.stderr
