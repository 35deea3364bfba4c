import base64
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.cli.verbs.certificates import certificates
from tests.messages import text_of
from unit_tests.cli.scripted_cluster import Capsys

DAY = timedelta(days=1)


def pair_in(folder: Path) -> x509.Certificate:
    """Return the serving certificate in the folder."""
    documents = yaml.safe_load_all((folder / "webhook-tls-secret.yaml").read_text(encoding="utf-8"))
    (serving,) = [each for each in documents if each["metadata"]["name"] == "gpu-scheduler-webhook-tls"]
    return x509.load_pem_x509_certificate(base64.b64decode(serving["data"]["tls.crt"]))


def test_a_first_run_says_what_is_there_and_what_comes_next(tmp_path: Path, capsys: Capsys) -> None:
    """The two commands can be copied into a shell, whatever the folder's name is."""
    folder = tmp_path / "my certs"

    certificates(out=str(folder), namespace="gpu")

    until = pair_in(folder).not_valid_after_utc
    ca_until = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()).not_valid_after_utc
    name = "gpu-scheduler-webhook.gpu.svc"
    bundle = f"$(base64 -w 0 '{folder}/ca.crt')"
    assert capsys.readouterr().out.splitlines() == [
        "Issued a CA and a certificate.",
        f"  '{folder}/webhook-tls-secret.yaml': both Secrets with their keys; keep it secret, do not commit it",
        f"  '{folder}/ca.crt': the CA, as caBundle",
        f"Valid: the CA until {ca_until:%Y-%m-%d}, the certificate of {name} until {until:%Y-%m-%d}.",
        "Next, in this order, in a cluster with namespace gpu:",
        f"  kubectl apply -f '{folder}/webhook-tls-secret.yaml'",
        f'  helm install gpu-scheduler charts/gpu-scheduler -n gpu --set webhook.caBundle="{bundle}"',
    ]


def test_a_second_run_changes_nothing(tmp_path: Path, capsys: Capsys) -> None:
    """It says so, and prints the commands again."""
    certificates(out=str(tmp_path))
    _, *others = capsys.readouterr().out.splitlines()
    before = pair_in(tmp_path)

    certificates(out=str(tmp_path))

    assert capsys.readouterr().out.splitlines() == [
        text_of("certificates: nothing to do"),
        *others,
    ]
    assert pair_in(tmp_path) == before
    certificates(out=str(tmp_path), force=True)
    assert capsys.readouterr().out.startswith(f"{text_of('certificates: renewed by force')}\n")
    assert pair_in(tmp_path) != before


def test_a_new_ca_is_trusted_before_what_it_signed_is_served(tmp_path: Path, capsys: Capsys) -> None:
    """In a cluster that trusts the one before, which stays trusted."""
    certificates(out=str(tmp_path))
    certificates(out=str(tmp_path), new_ca=True)

    bundle, _, _, first, second = capsys.readouterr().out.splitlines()[-5:]
    assert bundle == f"  {tmp_path}/ca.crt: the CA and those before it, as caBundle"
    assert first.startswith("  helm upgrade gpu-scheduler charts/gpu-scheduler -n gpu-scheduler-system --reuse-values")
    assert second == f"  kubectl apply -f {tmp_path}/webhook-tls-secret.yaml"


def test_days_and_service_are_those_of_the_options(tmp_path: Path) -> None:
    """The names are those of the Service in its namespace."""
    certificates(out=str(tmp_path), service="hook", namespace="gpu", serving_days=90, ca_days=120)

    certificate = pair_in(tmp_path)
    ca = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hook.gpu.svc", "hook.gpu", "hook.gpu.svc.cluster.local"]
    lived = [each.not_valid_after_utc - each.not_valid_before_utc for each in (certificate, ca)]
    assert lived == [90 * DAY + timedelta(minutes=5), 120 * DAY + timedelta(minutes=5)]


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "a namespace with a capital letter": (
        {"namespace": "GPU"},
        'cannot use --namespace "GPU": ',
    ),
    "a Service with a dot": ({"service": "a.b"}, 'cannot use --service "a.b": '),
    "a certificate that is due at once": (
        {"serving_days": 30},
        "cannot use --serving-days 30: ",
    ),
    "a CA that ends before the next certificate": (
        {"ca_days": 394},
        "cannot use --ca-days 394: ",
    ),
    "a folder that is a file": (
        {"out": "FILE"},
        "cannot write FILE: Not a directory; ",
    ),
    "a folder with a CA without its key": ({"out": "FOLDER"}, "cannot keep the CA of FOLDER/ca.crt: "),
}


@pytest.mark.parametrize(("given", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_sentence(
    given: dict[str, object], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").touch()
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FOLDER" / "ca.crt").touch()

    with pytest.raises(RefusedInputError) as refused:
        certificates(**given)  # type: ignore[arg-type]

    assert str(refused.value).startswith(sentence)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["FILE", "FOLDER", "ca.crt"]
