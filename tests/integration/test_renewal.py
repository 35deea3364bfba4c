"""`gpu-scheduler renew`, with the rights of its role, while pods are created."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.names import SERVING_SECRET
from tests.integration.certified import DAY, Certified

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    """A webhook that is registered and serves."""
    site = Certified(tmp_path_factory.mktemp("certified"))
    try:
        site.install()
        yield site
    finally:
        site.stop()


@pytest.mark.promise("hook-6")
def test_a_pair_with_200_days_is_not_written(site: Certified) -> None:
    """The renewer reads the two Secrets and ends."""
    site.serve_pair(200 * DAY)
    before = site.versions()

    done = site.renew()

    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()][1:] == ["Nothing is due", "Stopped"]
    assert site.versions() == before


@pytest.mark.promise("hook-5", "hook-6")
def test_a_pair_with_10_days_is_renewed_without_a_refused_create(site: Certified) -> None:
    """The webhook serves the new pair without a restart."""
    old = site.serve_pair(10 * DAY)
    assert site.webhook
    pid = site.webhook.process.pid
    with site.load() as load:
        done = site.renew()
        assert done.returncode == 0, done.stderr
        new = site.secret(SERVING_SECRET)["tls.crt"]
        site.wait_served(new)

    assert new != old
    assert load.served == {old, new}
    assert (site.webhook.process.pid, site.webhook.process.alive()) == (pid, True)
    before = site.versions()
    assert site.renew().returncode == 0
    assert site.versions() == before


def test_a_failure_is_one_line(site: Certified) -> None:
    """A Job that failed says why, without a traceback."""
    done = site.renew(KUBERNETES_NAMESPACE="default")

    last = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, last["event"]) == (1, "Ending")
    assert last["why"].startswith("cannot read Secret gpu-scheduler-webhook-ca: HTTP 403: secrets ")
    assert "Traceback" not in done.stderr
