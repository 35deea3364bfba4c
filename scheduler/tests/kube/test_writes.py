"""Writes as an Api sends them: through proxies and gateways, and with credentials that change."""

import asyncio
import gc
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes.aio.client.configuration import Configuration

from gpu_scheduler.kube.config.client_config import ClientConfig, ClientConfigError
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient, NoResponseError, NotSentError
from tests.kube.peers import CREATED, LARGE, Talk, authority, obliging, presenting, serving
from tests.kube.server import until

REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


class Rotating(ConfigLoader):
    """The second of two configurations is the one after the first was refused."""

    def __init__(self, *configurations: ClientConfig) -> None:
        super().__init__()
        self._configurations = list(configurations)

    async def __call__(self) -> ClientConfig:
        """See Reload."""
        return self._configurations.pop(0)


def configured(url: str, folder: Path, **others: Any) -> Configuration:
    """How to reach the server of these tests."""
    made = Configuration(host=url)
    authority().cert_pem.write_to_path(str(folder / "ca.crt"))
    made.ssl_ca_cert = str(folder / "ca.crt")
    for name, value in others.items():
        setattr(made, name, value)
    return made


async def test_a_query_is_encoded_and_a_gateways_path_stands_before_ours(tmp_path: Path) -> None:
    """As reads have it; a gateway for several clusters knows by the path which one is meant."""
    asked = []

    async def script(talk: Talk) -> None:
        asked.append(await talk.request())
        await talk.say(CREATED)

    async with serving(script) as peer:
        api = ApiClient(configured(peer.url + "/k8s/clusters/c-1", tmp_path), reload=Rotating())
        query = {"fieldManager": "gpu scheduler&co", "force": "true"}
        answer = await api.call("PATCH", "/api/v1/pods/a%2Fb", query=query, body=b"[]", content_type="x/y")
        await api.close()

    assert answer.status == 201
    head, _, body = asked[0].partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    assert line == "PATCH /k8s/clusters/c-1/api/v1/pods/a%2Fb?fieldManager=gpu+scheduler%26co&force=true HTTP/1.1"
    assert {f"Host: {urlsplit(peer.url).netloc}", "Content-Type: x/y", "Content-Length: 2"} < set(headers)
    assert body == b"[]"


async def test_what_was_not_sent_is_told_from_what_was_not_answered(tmp_path: Path) -> None:
    """The one may be sent again by whoever leads; of the other nobody knows what became of it."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await asyncio.sleep(0.01)
        gate.append(False)
        await talk.rest()

    gate = [True]
    async with serving(script, "https") as peer:
        api = ApiClient(configured(peer.url, tmp_path), reload=Rotating())
        with pytest.raises(NoResponseError, match="may not send") as raised:
            await api.call("POST", "/bind", body=bytes(LARGE), guard=lambda: gate[-1])
        with pytest.raises(NotSentError, match=r"^POST /bind: .*may not send"):
            await api.call("POST", "/bind", body=b"{}", guard=lambda: gate[-1])
        await api.close()

    assert not isinstance(raised.value, NotSentError)


def shown(folder: Path, name: str) -> dict[str, str]:
    """A client's certificate for this name."""
    pair, file = authority().issue_cert(name), str(folder / f"{name}.pem")
    pair.private_key_and_cert_chain_pem.write_to_path(file)
    return {"cert_file": file, "key_file": file}


async def test_a_changed_client_certificate_is_shown(tmp_path: Path) -> None:
    """The kept connections were opened with the one that is refused now."""
    seen: list[str] = []
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert("127.0.0.1").configure_cert(tls)
    authority().configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED

    async def script(talk: Talk) -> None:
        ((_, name),) = talk.writer.get_extra_info("peercert")["subjectAltName"]
        while True:
            await talk.request()
            await talk.say(REFUSED if seen and name == "old" else CREATED)
            seen.append(name)

    async with serving(script, "https", tls=tls) as peer:
        old, new = (configured(peer.url, tmp_path, **shown(tmp_path, name)) for name in ("old", "new"))
        api = ApiClient(old, reload=Rotating(new))
        statuses = [(await api.call("POST", "/x", body=b"{}")).status for _ in range(3)]
        await until(lambda: peer.open == 1)
        await api.close()

    assert statuses == [201] * 3
    assert seen == ["old", "old", "new", "new"]


async def test_new_credentials_that_lead_nowhere_change_nothing(tmp_path: Path) -> None:
    """The caller reads why there is no answer; writes go on as before."""
    says = iter((REFUSED,))

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await talk.say(next(says, CREATED))

    async with serving(script) as peer:
        nowhere = configured(peer.url, tmp_path, proxy="https://proxy")
        api = ApiClient(configured(peer.url, tmp_path), reload=Rotating(nowhere))
        with pytest.raises(NoResponseError, match=r"cannot read credentials again: cannot speak to https://proxy"):
            await api.call("POST", "/x", body=b"{}")
        assert (await api.call("POST", "/x", body=b"{}")).status == 201
        await api.close()


async def test_a_proxy_that_cannot_be_spoken_to_is_one_sentence(tmp_path: Path) -> None:
    """With the cure, and nothing left open behind it."""
    with pytest.raises(ClientConfigError, match=r"^cannot speak to https://proxy: .*example: http://proxy:3128"):
        ApiClient(configured("https://api", tmp_path, proxy="https://proxy"), reload=Rotating())
    gc.collect()


async def pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes."""
    try:
        while piece := await reader.read(2**16):
            writer.write(piece)
    finally:
        writer.close()


async def test_a_proxy_lays_through_what_it_cannot_read(tmp_path: Path) -> None:
    """It is told where to, by whom, and what the configuration adds; TLS is with the API server."""
    asked = []

    async def proxy(talk: Talk) -> None:
        asked.append((await talk.head()).decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(peer.url).port)
        await talk.say(b"HTTP/1.1 200 Connection established\r\n", b"Via: 1.1 proxy\r\n\r\n")
        await asyncio.gather(pumped(talk.reader, writer), pumped(reader, talk.writer))

    async with serving(obliging, "https", tls=presenting("api.internal")) as peer, serving(proxy) as between:
        way = between.url.replace("//", "//me%40home:p%3Ass@")
        url = peer.url.replace("127.0.0.1", "api.internal")
        api = ApiClient(configured(url, tmp_path, proxy=way, proxy_headers={"X-Team": "ml"}), reload=Rotating())
        statuses = [(await api.call("POST", "/x", body=b"{}")).status for _ in range(2)]
        await api.close()

    target = f"api.internal:{urlsplit(peer.url).port}"
    word = b64encode(b"me@home:p:ss").decode()
    assert statuses == [201, 201]
    assert asked == [
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nX-Team: ml\r\nProxy-Authorization: Basic {word}\r\n\r\n"
    ]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\nX: 200\r\n\r\n",
            "said 'HTTP/1.1 407 Proxy Authentication Req",
        ),
        (b"HTTP/1.1 503\r\n\r\n", "said 'HTTP/1.1 503'"),
        (b"\xff\r\n\r\n", "said '\N{REPLACEMENT CHARACTER}'"),
        (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
    ],
    ids=["who are you", "out of order", "no HTTP", "cut"],
)
async def test_a_proxys_refusal_is_told_in_its_own_words(tmp_path: Path, said: bytes, why: str) -> None:
    """An address of IPv6 stands in brackets before it."""
    asked = []

    async def proxy(talk: Talk) -> None:
        asked.append(await talk.head())
        await talk.say(said)

    async with serving(proxy) as between:
        api = ApiClient(configured("https://[fd00::1]", tmp_path, proxy=between.url), reload=Rotating())
        with pytest.raises(NoResponseError, match=f"^POST /x: the proxy {why}"):
            await api.call("POST", "/x", body=b"{}")
        await api.close()

    assert asked == [b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\n\r\n"]
