"""Connection to the pod's own cluster through its service account."""

from pathlib import Path

import pytest

from gpu_scheduler.kube.config.in_cluster import in_cluster_config

HERE = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text("a certificate")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def test_the_address_comes_from_the_kubelet(account: Path) -> None:
    """An IPv6 address gets brackets."""
    six = {**HERE, "KUBERNETES_SERVICE_HOST": "fd00::1"}

    assert in_cluster_config(account, HERE).host == "https://10.96.0.1:443"
    assert in_cluster_config(account, six).host == "https://[fd00::1]:443"
    assert in_cluster_config(account, HERE).authorities == "a certificate"


def test_a_token_is_read_again_as_it_ages(account: Path) -> None:
    """The kubelet replaces the file. While the file cannot be read, the old token is used."""
    clock = [0.0]
    cluster = in_cluster_config(account, HERE, clock=lambda: clock[0])
    token = account / "token"
    seen = []
    for clock[0], text in (
        (0.0, "second"),
        (59.0, "second"),
        (60.0, "third"),
        (119.0, "third"),
        (120.0, ""),
        (121.0, None),
    ):
        token.unlink(missing_ok=True)
        if text is not None:
            token.write_text(text)
        seen.append(cluster.authorization())

    assert seen == ["Bearer first", "Bearer first", "Bearer third", "Bearer third", "Bearer third", "Bearer third"]


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"),
        ("KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"),
    ],
)
def test_missing_cluster_variables_are_reported(account: Path, missing: str, sentence: str) -> None:
    """The variables are checked first."""
    with pytest.raises(ValueError, match=sentence):
        in_cluster_config(account, {**HERE, missing: ""})


@pytest.mark.parametrize("name", ["ca.crt", "token"])
def test_an_incomplete_service_account_is_reported(account: Path, name: str) -> None:
    """A file is empty or missing."""
    (account / name).write_text(" \n")
    with pytest.raises(ValueError, match=f"{name} is empty"):
        in_cluster_config(account, HERE)
    (account / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        in_cluster_config(account, HERE)
