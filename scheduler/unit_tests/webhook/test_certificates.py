import asyncio
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from gpu_scheduler.webhook.certificates import CertificateError, ServingCertificate, Validity, read_validity
from unit_tests.kube.server import until

EXPIRES = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)


def write(folder: Path, authority: trustme.CA, expires: datetime = EXPIRES) -> None:
    pair = authority.issue_cert("localhost", not_after=expires)
    pair.private_key_pem.write_to_path(str(folder / "tls.key"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))


async def handshake(server: ServingCertificate, authority: trustme.CA) -> object:
    """Connect as an API server does; return the serial number of the served certificate."""
    listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=server.context)
    async with listener:
        client = ssl.create_default_context()
        authority.configure_trust(client)
        port = listener.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
        peer = writer.get_extra_info("peercert")
        writer.close()
        return peer["serialNumber"]


@pytest.mark.promise("hook-5")
async def test_a_changed_pair_is_served_by_the_same_context(tmp_path: Path) -> None:
    """The next handshake gets the new certificate without a restart."""
    authority = trustme.CA()
    write(tmp_path, authority)
    served = ServingCertificate(tmp_path)
    first = await handshake(served, authority)
    assert not served.reload_if_changed()

    write(tmp_path, authority)

    assert served.reload_if_changed()
    assert await handshake(served, authority) != first


async def test_a_pair_that_does_not_fit_leaves_the_old_one_serving(tmp_path: Path) -> None:
    """Half of a rotation must not end the service. The next check loads the complete pair."""
    authority = trustme.CA()
    write(tmp_path, authority)
    served = ServingCertificate(tmp_path)
    serial = await handshake(served, authority)

    (tmp_path / "tls.key").write_text("nonsense", encoding="ascii")
    with pytest.raises(CertificateError, match=r"cannot serve .*tls\.crt with .*tls\.key"):
        served.reload_if_changed()
    assert await handshake(served, authority) == serial

    write(tmp_path, authority)
    assert served.reload_if_changed()


async def test_the_folder_is_watched(tmp_path: Path) -> None:
    """An invalid pair in between does not end the watching."""
    authority = trustme.CA()
    write(tmp_path, authority)
    served = ServingCertificate(tmp_path)
    watching = asyncio.create_task(served.keep_fresh(0.01))
    (tmp_path / "tls.crt").write_text("nonsense", encoding="ascii")
    await asyncio.sleep(0.05)
    write(tmp_path, authority, datetime(2040, 1, 1, tzinfo=UTC))

    await until(lambda: served.validity.ends == datetime(2040, 1, 1, tzinfo=UTC).timestamp())
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_a_missing_pair_names_file_and_variable(tmp_path: Path) -> None:
    """The operator reads which variable to set."""
    with pytest.raises(CertificateError, match=r"tls\.crt.*example: CERTIFICATE_DIR="):
        ServingCertificate(tmp_path)


def test_validity_is_read_from_the_certificate(tmp_path: Path) -> None:
    """Begin and end, in both of the formats of a date."""
    authority = trustme.CA()
    write(tmp_path, authority)
    assert read_validity((tmp_path / "tls.crt").read_text(encoding="ascii")).ends == EXPIRES.timestamp()

    late = datetime(2999, 1, 2, 3, 4, 5, tzinfo=UTC)
    write(tmp_path, authority, late)
    validity = read_validity((tmp_path / "tls.crt").read_text(encoding="ascii"))
    assert validity.ends == late.timestamp()
    assert validity.begins < time.time()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_an_incomplete_certificate_is_an_error(text: str) -> None:
    """It is truncated or missing."""
    with pytest.raises(ValueError, match="certificate"):
        read_validity(text)


def test_readiness_reports_an_expired_certificate(tmp_path: Path) -> None:
    """It names the limit that is exceeded, and the seconds left become negative."""
    write(tmp_path, trustme.CA())
    now = [0.0]
    served = ServingCertificate(tmp_path, wall=lambda: now[0])
    served.validity = Validity(100, 200)

    assert served.problem() == "the certificate is not valid yet"
    now[0] = 150
    assert served.problem() is None
    assert served.seconds_left() == 50
    now[0] = 200
    assert served.problem() == "the certificate has expired"


@pytest.mark.parametrize("known", [True, False], ids=["signed by the authority", "signed by another"])
async def test_clients_may_have_to_show_a_certificate(tmp_path: Path, *, known: bool) -> None:
    """With a CA for clients, only clients that it signed get a response: an API server with its own certificate."""
    authority, clients = trustme.CA(), trustme.CA()
    write(tmp_path, authority)
    clients.cert_pem.write_to_path(str(tmp_path / "clients.crt"))
    served = ServingCertificate(tmp_path, client_ca=tmp_path / "clients.crt")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    (clients if known else trustme.CA()).issue_cert("kube-apiserver").configure_cert(context)
    listener = await asyncio.start_server(lambda _, writer: writer.write(b"x"), "127.0.0.1", 0, ssl=served.context)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        if known:
            assert await reader.readexactly(1) == b"x"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        writer.transport.abort()


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The error names the variable that sets its path."""
    write(tmp_path, trustme.CA())
    with pytest.raises(CertificateError, match=r"/absent\.crt.*CLIENT_CA="):
        ServingCertificate(tmp_path, client_ca=tmp_path / "absent.crt")
