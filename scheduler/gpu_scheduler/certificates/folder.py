"""The two Secrets as files, for who installs without a playbook and without a Job: `gpu-scheduler certificates`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from gpu_scheduler.certificates.issuing import (
    PREVIOUS,
    TRUSTED,
    CaError,
    IssuingError,
    Terms,
    end_of,
    issue,
    issue_ca,
    read_authority,
    reason_to_renew,
    still_trusted,
)
from gpu_scheduler.certificates.secrets import manifest
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.names import CA_SECRET, SERVING_SECRET

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from pathlib import Path

    from gpu_scheduler.certificates.issuing import Authority

SECRETS_FILE: Final = "webhook-tls-secret.yaml"
BUNDLE_FILE: Final = TRUSTED
_HEAD: Final = (
    "# Written by `gpu-scheduler certificates`. It has the keys of the CA and of the webhook: keep it secret.\n"
)
_NEW_CA: Final = "make a new CA (example: gpu-scheduler certificates --new-ca), or choose another folder"
_PRIVATE, _PUBLIC = 0o600, 0o644


class _Meta(msgspec.Struct):
    name: str


class _Secret(msgspec.Struct):
    metadata: _Meta
    # msgspec decodes base64 here.
    data: dict[str, bytes]


@immutable
class Wanted:
    """What the user asks for."""

    namespace: str
    terms: Terms
    ca_validity: timedelta
    force: bool = False
    """Issue a new pair, due or not."""
    new_ca: bool = False


@immutable
class IssueResult:
    """What was done, as a sentence; until when CA and certificate are valid; whether a CA before stays trusted."""

    done: str
    ca_until: datetime
    until: datetime
    has_previous: bool


def fill(folder: Path, wanted: Wanted, now: datetime) -> IssueResult:
    """Write the two files where they are missing, due or asked for anew.

    IssuingError if the CA that is there cannot be used; OSError if a file cannot be read or written.
    """
    stored = _read(folder, new_ca=wanted.new_ca)
    ca = stored.get(CA_SECRET)
    is_new = ca is None or wanted.new_ca
    if ca is None or wanted.new_ca:
        ca = issue_ca(wanted.ca_validity, now, _previous(folder, ca, now))
    try:
        authority = read_authority(ca)
        pair = stored.get(SERVING_SECRET, {})
        reason = reason_to_renew(pair, authority, wanted.terms, now)
        if reason or wanted.force:
            pair = issue(authority, wanted.terms, now)
            _write_secrets(folder, wanted.namespace, ca, pair)
    except CaError as error:
        raise IssuingError(f"{error.problem}; {_NEW_CA}") from error
    is_trust_written = _write_trusted(folder, authority)
    if is_new:
        done = "Issued a CA and a certificate." if not ca[PREVIOUS] else "Issued a new CA and a certificate."
    elif wanted.force:
        done = "Issued a new certificate; the CA stays the same."
    elif reason:
        done = f"Issued a new certificate, because {reason}; the CA stays the same."
    elif is_trust_written:
        done = f"Wrote {BUNDLE_FILE} anew; the Secrets stay the same."
    else:
        done = "Changed nothing: CA and certificate are in order (--force issues a new certificate)."
    return IssueResult(done, authority.certificate.not_valid_after_utc, end_of(pair), bool(ca[PREVIOUS]))


def _read(folder: Path, *, new_ca: bool) -> dict[str, dict[str, bytes]]:
    """Return the data of the Secrets in the folder. With `new_ca`, what cannot be used counts as missing."""
    file = folder / SECRETS_FILE
    try:
        return _decoded(file)
    except FileNotFoundError as error:
        if (folder / BUNDLE_FILE).exists() and not new_ca:
            raise IssuingError(
                f"cannot keep the CA of {folder / BUNDLE_FILE}: {file} is missing, which has its key; {_NEW_CA}"
            ) from error
        return {}
    except IssuingError:
        if new_ca:
            return {}
        raise


def _decoded(file: Path) -> dict[str, dict[str, bytes]]:
    try:
        documents: list[Any] = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
        secrets = [msgspec.convert(each, _Secret) for each in documents if each is not None]
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise IssuingError(f"cannot read the Secrets in {file}: {why}; {_NEW_CA}") from error
    found = {each.metadata.name: each.data for each in secrets}
    if CA_SECRET not in found:
        raise IssuingError(f"cannot keep the CA of {file}: it has no Secret {CA_SECRET}; {_NEW_CA}")
    return found


def _previous(folder: Path, ca: dict[str, bytes] | None, now: datetime) -> bytes:
    """Return the CAs that stay trusted beside a new one: those of the Secret, else those of the file."""
    file = folder / BUNDLE_FILE
    if ca is not None:
        bundle = ca.get(TRUSTED, b"") + b"\n" + ca.get(PREVIOUS, b"")
    elif file.exists():
        bundle = file.read_bytes()
    else:
        return b""
    try:
        return still_trusted(bundle, now)
    except ValueError:
        return b""


def _write_secrets(folder: Path, namespace: str, ca: dict[str, bytes], pair: dict[str, bytes]) -> None:
    documents = [manifest(CA_SECRET, namespace, ca), manifest(SERVING_SECRET, namespace, pair)]
    text = _HEAD + yaml.safe_dump_all(documents, sort_keys=False)
    _write(folder / SECRETS_FILE, text.encode(), _PRIVATE)


def _write_trusted(folder: Path, authority: Authority) -> bool:
    """Write the CAs to trust if the file differs; return whether it did."""
    file = folder / BUNDLE_FILE
    if file.exists() and file.read_bytes() == authority.trusted:
        return False
    _write(file, authority.trusted, _PUBLIC)
    return True


def _write(file: Path, content: bytes, mode: int) -> None:
    """Write the whole file or nothing of it, never readable for more users than `mode` says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as opened:
        opened.write(content)
    fresh.replace(file)
