import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
import trustme

from gpu_scheduler.kube.config.client_config import ClientConfig, ClientConfigError, tls_of, trust
from gpu_scheduler.kube.config.files import MOST_BYTES
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from tests.messages import text_of
from tests.objects import Object

PACKAGE = Path(__file__).resolve().parents[2]


def config(*names: str, current: str | None = None, **context: str) -> Object:
    """Return a kubeconfig with these contexts; each leads to a server of the same name."""
    return {
        **({"current-context": current} if current else {}),
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}"}} for name in names],
        "users": [{"name": name, "user": {"token": f"of-{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}} for name in names],
    }


def one(cluster: Object, user: Object) -> Object:
    return {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://a", **cluster}}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }


def written(tmp_path: Path, *bodies: Object | str) -> str:
    """Write the files; return their paths as KUBECONFIG lists them."""
    files = []
    for number, body in enumerate(bodies):
        file = tmp_path / f"config-{number}"
        file.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
        files.append(str(file))
    return os.pathsep.join(files)


async def test_a_context_gives_server_credentials_and_namespace(tmp_path: Path) -> None:
    """The named context is used, or else the current one."""
    paths = written(tmp_path, config("a", "b", current="a", namespace="ml"))

    chosen, current = ConfigLoader(paths, "b"), ConfigLoader(paths)
    access = await chosen()
    assert (access.host, access.authorization()) == ("https://b", "Bearer of-b")
    assert (await current()).host == "https://a"
    assert (chosen.context, chosen.namespace) == ("b", "ml")
    assert (current.context, current.namespace) == ("a", "ml")


async def test_a_context_without_a_namespace_uses_default(tmp_path: Path) -> None:
    """Like in kubectl."""
    reload = ConfigLoader(written(tmp_path, config("a", current="a")))
    await reload()

    assert reload.namespace == "default"


async def test_several_files_are_merged(tmp_path: Path) -> None:
    """The first file with a current context decides. Files that do not exist are ignored."""
    paths = written(tmp_path, config("a"), config("b", current="b"), config("c", current="c"))

    assert (await ConfigLoader(f"/nowhere{os.pathsep}{paths}")()).host == "https://b"


async def test_the_chosen_context_is_kept(tmp_path: Path) -> None:
    """Credentials are read again. A new current context would be another cluster."""
    paths = written(tmp_path, config("a", "b", current="a"))
    reload = ConfigLoader(paths)
    await reload()
    written(tmp_path, config("a", "b", current="b"))

    assert (await reload()).host == "https://a"


YAML = """
current-context: &name x
clusters:
- name: x
  cluster: {server: https://a/}
contexts:
- name: *name
  context: {cluster: *name}
"""
MERGES: dict[str, tuple[tuple[Object | str, ...], str | None, str, str | None]] = {
    "a name means what the first file says of it, and nothing of the second is added": (
        ({"clusters": [{"name": "a", "cluster": {"server": "https://first"}}]}, config("a", current="a")),
        None,
        "https://first",
        "Bearer of-a",
    ),
    "a context of the second file may use a cluster of the first": (
        (
            {"clusters": [{"name": "a", "cluster": {"server": "https://first"}}]},
            {"contexts": [{"name": "c", "context": {"cluster": "a"}}]},
        ),
        "c",
        "https://first",
        None,
    ),
    "an empty current context counts as none": (
        ({"current-context": "", "users": None}, config("a", current="a")),
        None,
        "https://a",
        "Bearer of-a",
    ),
    "an empty file says nothing": (("", config("a", current="a")), None, "https://a", "Bearer of-a"),
    "a plugin of another user may be half written": (
        ({**config("a", current="a"), "users": [{"name": "a"}, {"name": "b", "user": {"exec": {}}}]},),
        None,
        "https://a",
        None,
    ),
    "a file in YAML, with an anchor": ((YAML,), None, "https://a", None),
}


@pytest.mark.parametrize(("bodies", "context", "host", "header"), MERGES.values(), ids=MERGES)
async def test_files_are_merged_as_kubectl_merges_them(
    bodies: tuple[Object | str, ...], context: str | None, host: str, header: str | None, tmp_path: Path
) -> None:
    """tests/integration/test_kubeconfig.py asks kubectl itself."""
    access = await ConfigLoader(written(tmp_path, *bodies), context)()

    assert (access.host, access.authorization()) == (host, header)


HEADERS: dict[str, tuple[Object, str | None]] = {
    "nothing": ({}, None),
    "a token": ({"token": "abc"}, "Bearer abc"),
    "a token's file, relative to the kubeconfig": ({"tokenFile": "token"}, "Bearer of-the-file"),
    "a token and its file, which is newer": ({"token": "abc", "tokenFile": "token"}, "Bearer of-the-file"),
    "a token, where its file is not there": ({"token": "abc", "tokenFile": "nowhere"}, "Bearer abc"),
    "a name and a password": ({"username": "me", "password": "p"}, f"Basic {b64encode(b'me:p').decode()}"),
    "a name alone": ({"username": "me"}, f"Basic {b64encode(b'me:').decode()}"),
    "a token before a plugin": ({"token": "abc", "exec": {"command": "x", "apiVersion": "x"}}, "Bearer abc"),
}


@pytest.mark.parametrize(("user", "header"), HEADERS.values(), ids=HEADERS)
async def test_a_user_gives_the_authorization_header(user: Object, header: str | None, tmp_path: Path) -> None:
    """A plugin runs only for a user without other credentials."""
    (tmp_path / "token").write_text("of-the-file\n")

    assert (await ConfigLoader(written(tmp_path, one({}, user)))()).authorization() == header


@pytest.mark.parametrize(
    "user",
    [
        pytest.param({"token": "abc"}, id="a token"),
        pytest.param({"username": "me", "password": "p"}, id="a password"),
        pytest.param({"exec": {"command": "not-there"}}, id="what a plugin would print"),
    ],
)
async def test_plain_http_carries_no_credentials(user: Object, tmp_path: Path) -> None:
    """Nor does kubectl send any, or run a plugin."""
    access = await ConfigLoader(written(tmp_path, one({"server": "http://a"}, user)))()

    assert access == ClientConfig("http://a")


async def test_a_cluster_gives_the_way_to_it(tmp_path: Path) -> None:
    """Data wins over a file."""
    cluster = {
        "server": "https://a/k8s/",
        "certificate-authority-data": b64encode(b"of the data").decode() + "\n",
        "certificate-authority": "nowhere",
        "tls-server-name": "b",
        "proxy-url": "http://proxy:3128",
    }
    access = await ConfigLoader(written(tmp_path, one(cluster, {})))()

    assert access == ClientConfig(
        "https://a/k8s", authorities="of the data", server_name="b", proxy="http://proxy:3128"
    )


@pytest.mark.parametrize("as_data", [True, False], ids=["as data", "as files, relative to the kubeconfig"])
async def test_certificates_reach_the_tls_context(as_data: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a row
    """OpenSSL reads the certificate from files, of which none is left."""
    authority = trustme.CA()
    pair = authority.issue_cert("me")
    parts = {
        "certificate-authority": authority.cert_pem.bytes(),
        "client-certificate": pair.cert_chain_pems[0].bytes(),
        "client-key": pair.private_key_pem.bytes(),
    }
    values: Object = {}
    for name, content in parts.items():
        (tmp_path / name).write_bytes(content)
        values |= {f"{name}-data": b64encode(content).decode()} if as_data else {name: name}
    # Cluster and user each read their own values of these.
    access = await ConfigLoader(written(tmp_path, one(values, values)))()

    assert access.certificate == (parts["client-certificate"], parts["client-key"])
    assert tls_of(access).cert_store_stats()["x509_ca"] == 1
    assert b"PRIVATE" not in repr(access).encode()


def test_the_files_of_a_key_are_private_and_removed() -> None:
    """They exist while OpenSSL reads them. An encrypted key is refused, not asked for."""
    seen: list[tuple[Path, int, int]] = []

    class Context:
        def load_cert_chain(self, *files: Path, password: object) -> None:
            seen.extend((file, file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) for file in files)
            assert callable(password)
            assert not password()

    trust(Context(), ClientConfig("https://a", certificate=(b"c", b"k")))  # type: ignore[arg-type]  # it has what is used

    assert [(own, folder) for _, own, folder in seen] == [(0o600, 0o700)] * 2
    assert not any(file.exists() or file.parent.exists() for file, _, _ in seen)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"authorities": "no certificate"}, id="no CA"),
        pytest.param({"authorities": " "}, id="an empty CA"),
        pytest.param({"certificate": (b"c", b"k")}, id="no client certificate"),
    ],
)
def test_unusable_certificates_are_reported(broken: Object) -> None:
    """At start, and when they are read again."""
    access, healthy = ClientConfig("https://a", **broken), tls_of(ClientConfig("https://a"))

    with pytest.raises(ClientConfigError, match=text_of("certificates cannot be used")):
        tls_of(access)
    with pytest.raises(ClientConfigError, match=text_of("certificates cannot be used")):
        trust(healthy, access)


async def test_a_server_may_stay_unverified(tmp_path: Path) -> None:
    """Where the kubeconfig says so."""
    access = await ConfigLoader(written(tmp_path, one({"insecure-skip-tls-verify": True}, {})))()

    assert not tls_of(access).check_hostname


# Kubeconfig → what is wrong with it; and with the context that a user names.
FAULTS: dict[str, tuple[Object | str, str]] = {
    "no current context": (config("a"), " context; it knows a"),
    "an empty current context": ({"current-context": ""}, " context; it knows none"),
    "nothing": ("", " context; it knows none"),
    "a list": ("[1]", "Expected `object`, got `array` "),
    "no YAML": ("a: [", "while parsing"),
    "two documents": ("a: 1\n---\nb: 1", "expected a single document"),
    "a scalar that does not fit its tag": ("a: !!timestamp x", ""),
    "too deep": ("[" * 5000, ""),
    "too large": ("#" * (MOST_BYTES + 1), ".* has more than 4 MiB"),
    "a map for a list": ({"clusters": {"a": 1}}, "Expected `array | null`, got `object` - at `$.clusters` "),
    "a number for a text": (
        one({}, {"password": 1}),
        "Expected `str | null`, got `int` - at `$.users[...].user.password` ",
    ),
    "a context without a cluster": (
        {"current-context": "a", "clusters": [], "contexts": [{"name": "a", "context": {"cluster": "a"}}]},
        'context "a" names cluster "a", ',
    ),
    "a context without a user": (
        {**config("a", current="a"), "users": []},
        'context "a" names user "a", ',
    ),
    "two clusters of one name": (config("a", "a", current="a"), '"a" .* two clusters '),
    "two users of one name": (
        {"users": [{"name": "a"}, {"name": "b"}, {"name": "a"}]},
        '"a" .* two users ',
    ),
    "two contexts without a name": ({"contexts": [{}, {}]}, '"" .* two contexts '),
    "a provider that no client has any more": (
        one({}, {"auth-provider": {"name": "gcp"}}),
        ".* auth-provider; ",
    ),
    "a user who acts as another": (one({}, {"as": "you"}), ".* impersonates "),
    "a user who acts as another's group": (one({}, {"as-groups": ["g"]}), ".* impersonates "),
    "a token and a password": (one({}, {"token": "a", "username": "b"}), ".* both a token and a user"),
    "a token with a line break": (one({}, {"token": "a\nb"}), "the token "),
    "a certificate without its key": (
        one({}, {"client-certificate-data": "YQ=="}),
        ".* client-certificate and client-key",
    ),
    "a token's file that is not there": (one({}, {"tokenFile": "nowhere"}), ".*No such file or directory: .*/now"),
    "data that is not base64": (one({"certificate-authority-data": "%"}, {}), "certificate-authority-data "),
    "a CA that is not to be used": (
        one({"certificate-authority-data": "YQ==", "insecure-skip-tls-verify": True}, {}),
        ".* certificate-authority and insecure",
    ),
}
OF_CONTEXTS: dict[str, tuple[Object, str, str]] = {
    "no context of that name": (config("a", "b"), "c", 'it has no context "c"; it knows a, b'),
    "no context at all": (config(), "a", 'it has no context "a"; it knows none'),
    "a context without a name": ({"clusters": [], "contexts": [{}]}, "a", 'it has no context "a"; it knows '),
}


@pytest.mark.parametrize(
    ("body", "context", "why"),
    [*((body, None, why) for body, why in FAULTS.values()), *OF_CONTEXTS.values()],
    ids=[*FAULTS, *OF_CONTEXTS],
)
async def test_an_unusable_kubeconfig_is_reported(
    body: Object | str, context: str | None, why: str, tmp_path: Path
) -> None:
    """The error is one sentence that names the file."""
    paths = written(tmp_path, body)
    with pytest.raises(ClientConfigError) as raised:
        await ConfigLoader(paths, context)()

    sentence = str(raised.value)
    assert f" kubeconfig {paths}: " in sentence
    assert re.search(why, sentence.partition(f"kubeconfig {paths}: ")[2])
    assert "\n" not in sentence


@pytest.mark.parametrize(("kubeconfig", "loaded"), [(True, {"yaml"}), (False, set())])
def test_little_is_loaded(kubeconfig: bool, loaded: set[str], tmp_path: Path) -> None:  # noqa: FBT001 - a row
    """A verb has 0.4 s of CPU, of which the Kubernetes client alone takes 0.36 s. A pod does not even need YAML."""
    paths = written(tmp_path, config("a", current="a")) if kubeconfig else None
    script = (
        "import asyncio, contextlib, sys; from gpu_scheduler.kube.config.client_config import ClientConfigError; "
        "from gpu_scheduler.kube.config.kubeconfig import ConfigLoader\n"
        f"with contextlib.suppress(ClientConfigError): asyncio.run(ConfigLoader({paths!r})())\n"
        "print('\\n'.join(sys.modules))"
    )

    result = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert {"kubernetes", "aiohttp", "yaml"} & set(result.stdout.split()) == loaded
