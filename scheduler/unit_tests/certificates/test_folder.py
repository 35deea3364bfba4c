"""The folder of `gpu-scheduler certificates` over the years, at chosen dates."""

import base64
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from gpu_scheduler.certificates.folder import IssueResult, Wanted, fill
from gpu_scheduler.certificates.issuing import IssuingError, Terms, names_of, read_authority, reason_to_renew
from tests.messages import text_of
from unit_tests.certificates.authorities import DAY, NOW, TERMS

WANTED = Wanted("gpu-scheduler-system", TERMS, 3650 * DAY)
ELSEWHERE = Wanted("gpu", Terms(names_of("gpu-scheduler-webhook", "gpu"), 365 * DAY, 30 * DAY), 3650 * DAY)
CA, SERVING = "gpu-scheduler-webhook-ca", "gpu-scheduler-webhook-tls"
NOTHING = text_of("certificates: nothing to do")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that was filled at NOW."""
    made = tmp_path / "certs"
    assert fill(made, WANTED, NOW).done == "Issued a CA and a certificate."
    return made


def documents(folder: Path) -> dict[str, dict[str, Any]]:
    text = (folder / "webhook-tls-secret.yaml").read_text(encoding="utf-8")
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(text)}


def data_of(folder: Path, name: str) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in documents(folder)[name]["data"].items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def store(folder: Path, name: str, data: dict[str, bytes]) -> None:
    """Write this data into a Secret of the file; a Secret without data is left out."""
    found = documents(folder)
    found[name]["data"] = {key: base64.b64encode(value).decode() for key, value in data.items()}
    kept = [each for each in found.values() if each["data"]]
    (folder / "webhook-tls-secret.yaml").write_text(yaml.safe_dump_all(kept), encoding="utf-8")


def test_a_new_folder_is_what_the_renewer_reads(folder: Path) -> None:
    """Both Secrets, the CA to trust, and keys for the user alone."""
    ca, pair = data_of(folder, CA), data_of(folder, SERVING)

    assert set(contents(folder)) == {"ca.crt", "webhook-tls-secret.yaml"}
    assert (folder / "ca.crt").read_bytes() == ca["ca.crt"] == pair["ca.crt"]
    assert reason_to_renew(pair, read_authority(ca), TERMS, NOW) == ""
    assert stat.S_IMODE((folder / "webhook-tls-secret.yaml").stat().st_mode) == 0o600
    assert b"PRIVATE" not in (folder / "ca.crt").read_bytes()


def test_the_outcome_has_the_dates(folder: Path) -> None:
    """Those of the folder, not of the run."""
    outcome = fill(folder, WANTED, NOW + 10 * DAY)

    assert outcome == IssueResult(NOTHING, NOW + 3650 * DAY, NOW + 365 * DAY, has_previous=False)


NEW_CA = text_of("certificates: a new CA")


def because(why: str) -> str:
    """Return what a run says that issued a new certificate."""
    return text_of("certificates: renewed", why=why)


KEPT: dict[str, tuple[Wanted, datetime, str]] = {
    "with 30 days left it is the same": (WANTED, NOW + 335 * DAY, NOTHING),
    "with fewer it is due": (
        WANTED,
        NOW + 336 * DAY,
        because("29 days are left"),
    ),
    "ended": (WANTED, NOW + 400 * DAY, because("it has ended")),
    "another namespace": (
        ELSEWHERE,
        NOW,
        because(text_of("certificates: other names")),
    ),
    "other days change nothing before it is due": (
        replace(WANTED, ca_validity=900 * DAY, terms=replace(TERMS, validity=90 * DAY)),
        NOW,
        NOTHING,
    ),
    "by force": (replace(WANTED, force=True), NOW, text_of("certificates: renewed by force")),
}


@pytest.mark.parametrize(("wanted", "now", "done"), KEPT.values(), ids=KEPT)
def test_the_ca_of_a_folder_is_kept(folder: Path, wanted: Wanted, now: datetime, done: str) -> None:
    """A run says in one sentence what it did, and one that has nothing to do writes nothing."""
    before, ca = contents(folder), data_of(folder, CA)
    times = {each.name: each.stat().st_mtime_ns for each in folder.iterdir()}

    outcome = fill(folder, wanted, now)

    assert outcome.done == done
    assert data_of(folder, CA) == ca
    assert {each["metadata"]["namespace"] for each in documents(folder).values()} == {wanted.namespace}
    assert reason_to_renew(data_of(folder, SERVING), read_authority(ca), wanted.terms, now) == ""
    assert (contents(folder) == before) is (done == NOTHING)
    if done == NOTHING:
        assert {each.name: each.stat().st_mtime_ns for each in folder.iterdir()} == times
    assert fill(folder, replace(wanted, force=False), now).done == NOTHING


def test_a_new_ca_is_trusted_beside_those_before_it(folder: Path) -> None:
    """At most the last two, so that what they signed is trusted until the new pair is served everywhere."""
    first = data_of(folder, CA)["ca.crt"]

    outcome = fill(folder, replace(WANTED, new_ca=True), NOW)
    second = data_of(folder, CA)
    fill(folder, replace(WANTED, new_ca=True), NOW)
    fill(folder, replace(WANTED, new_ca=True), NOW)

    assert (outcome.done, outcome.has_previous) == (NEW_CA, True)
    assert (second["previous.crt"], second["tls.crt"]) == (first, second["ca.crt"])
    trusted = x509.load_pem_x509_certificates((folder / "ca.crt").read_bytes())
    assert len(trusted) == 3
    assert first not in (folder / "ca.crt").read_bytes()
    assert reason_to_renew(data_of(folder, SERVING), read_authority(data_of(folder, CA)), TERMS, NOW) == ""


def test_a_lost_bundle_is_written_again(folder: Path) -> None:
    """The CA is in the Secret."""
    before = contents(folder)
    (folder / "ca.crt").unlink()

    assert fill(folder, WANTED, NOW).done == text_of("certificates: the bundle is written again")
    assert contents(folder) == before


def test_a_lost_pair_is_issued_again(folder: Path) -> None:
    """By the same CA."""
    ca = data_of(folder, CA)
    store(folder, SERVING, {})

    assert fill(folder, WANTED, NOW).done == because(text_of("certificates: unreadable"))
    assert data_of(folder, CA) == ca


def secrets_of(folder: Path) -> Path:
    return folder / "webhook-tls-secret.yaml"


def cut_short(folder: Path) -> None:
    file = secrets_of(folder)
    file.write_text(file.read_text(encoding="utf-8")[:500] + "\n  [", encoding="utf-8")


def other_key(folder: Path) -> None:
    store(folder, CA, {**data_of(folder, CA), "tls.key": data_of(folder, SERVING)["tls.key"]})


NOT_BASE64 = "metadata: {name: gpu-scheduler-webhook-ca}\ndata: {tls.crt: '%'}\n"
UNUSABLE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "the file of the Secrets is missing": (
        lambda folder: secrets_of(folder).unlink(),
        "CA of {}/ca.crt: {}/webhook-tls-secret.ya",
    ),
    "the CA's Secret is missing, as older scripts had none": (
        lambda folder: store(folder, CA, {}),
        "CA of {}/webhook-tls-secret.yaml: it has no Secret gpu-scheduler-webhook-ca; ",
    ),
    "no YAML": (cut_short, " in {}/webhook-tls-secret.yaml: "),
    "no Secrets": (
        lambda folder: secrets_of(folder).write_text("- hello\n"),
        " in {}/webhook-tls-secret.yaml: Expected `object`",
    ),
    "no base64": (
        lambda folder: secrets_of(folder).write_text(NOT_BASE64),
        " in {}/webhook-tls-secret.yaml: Invalid base64",
    ),
    "the key of another": (
        other_key,
        "cannot sign: tls.key of Secret gpu-scheduler-webhook-ca ",
    ),
}


@pytest.mark.parametrize(("damage", "sentence"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_ca_that_cannot_be_used_is_not_replaced_unasked(
    folder: Path, damage: Callable[[Path], Any], sentence: str
) -> None:
    """The API server of some cluster may trust it. With --new-ca it stays trusted."""
    first = (folder / "ca.crt").read_bytes()
    damage(folder)
    before = contents(folder)

    with pytest.raises(IssuingError) as refused:
        fill(folder, WANTED, NOW)

    assert sentence.replace("{}", str(folder)) in str(refused.value)
    assert "--new-ca" in str(refused.value)
    assert "make up" not in str(refused.value)
    assert contents(folder) == before
    assert fill(folder, replace(WANTED, new_ca=True), NOW).done == NEW_CA
    assert (folder / "ca.crt").read_bytes().endswith(first)
    assert reason_to_renew(data_of(folder, SERVING), read_authority(data_of(folder, CA)), TERMS, NOW) == ""


def test_a_ca_near_its_end_is_not_replaced_unasked(folder: Path) -> None:
    """A certificate never outlives its CA."""
    late = NOW + 3649 * DAY
    fill(folder, WANTED, late - 30 * DAY)

    with pytest.raises(IssuingError, match=f"{NOW + 3650 * DAY:%Y-%m-%d}"):
        fill(folder, WANTED, late)


@pytest.mark.parametrize("content", [b"", b"no certificate"])
def test_a_bundle_that_cannot_be_read_is_not_trusted_any_more(folder: Path, content: bytes) -> None:
    """With --new-ca, after which the folder is in order."""
    secrets_of(folder).unlink()
    (folder / "ca.crt").write_bytes(content)

    outcome = fill(folder, replace(WANTED, new_ca=True), NOW)

    assert (outcome.done, outcome.has_previous) == ("Issued a CA and a certificate.", False)
    assert fill(folder, WANTED, NOW).done == NOTHING


def test_a_leftover_of_a_run_that_was_killed_does_not_widen_the_mode(folder: Path) -> None:
    """It is removed, whoever may read it."""
    leftover = folder / ".webhook-tls-secret.yaml.new"
    leftover.write_text("half", encoding="utf-8")
    leftover.chmod(0o644)

    fill(folder, replace(WANTED, force=True), NOW + timedelta(days=1))

    assert not leftover.exists()
    assert stat.S_IMODE((folder / "webhook-tls-secret.yaml").stat().st_mode) == 0o600
