"""The OCI runtime requests exactly the capabilities that the host grants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.loading import load

runtime = load("roles", "container_engine", "files", "oci_runtime.py")

WITHOUT_RESOURCE = "Name:\tcat\nCapBnd:\t000001fffeffffff\nCapAmb:\t0000000000000000\n"


def test_bounding_set_is_read_bit_by_bit() -> None:
    """The mask of a kernel that withholds one capability contains all others."""
    assert set(runtime.CAPABILITIES) - runtime.granted(WITHOUT_RESOURCE) == {"CAP_SYS_RESOURCE"}


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["--root", "/run/x", "create", "--bundle", "/b", "--pid-file", "/p", "id"], "/b/config.json"),
        (["run", "-b", "/b", "id"], "/b/config.json"),
        (["create", "--bundle=/b", "id"], "/b/config.json"),
        (["--log-format", "json", "exec", "--process", "/tmp/p", "--detach", "id"], "/tmp/p"),  # noqa: S108
        (["exec", "-p", "/p", "id"], "/p"),
        (["exec", "id", "sh"], None),
        (["state", "id"], None),
        (["delete", "--force", "id"], None),
    ],
)
def test_only_calls_that_start_a_process_have_a_request(arguments: list[str], file: str | None) -> None:
    """create, run and exec name the file to trim, however the option is written; no other call does."""
    assert runtime.request_file(arguments) == (Path(file) if file else None)


def test_bundle_loses_capabilities_that_the_host_withholds() -> None:
    """Every set of a container's capabilities loses those that the host withholds, and nothing else changes."""
    process = {
        "args": ["sh"],
        "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]},
        "oomScoreAdj": -999,
    }

    trimmed = runtime.trimmed({"ociVersion": "1.0.2", "process": process}, runtime.granted(WITHOUT_RESOURCE))

    assert trimmed == {
        "ociVersion": "1.0.2",
        "process": {
            "args": ["sh"],
            "capabilities": {"bounding": ["CAP_CHOWN"], "effective": []},
            "oomScoreAdj": 0,
        },
    }


def test_exec_is_a_process_without_a_bundle() -> None:
    """The file of an exec is the process itself."""
    request = {"args": ["sh"], "capabilities": {"bounding": ["CAP_SYS_RESOURCE"]}}

    assert runtime.trimmed(request, frozenset()) == {"args": ["sh"], "capabilities": {"bounding": []}}


@pytest.mark.parametrize("request_", [{"args": ["sh"]}, {"args": ["sh"], "oomScoreAdj": 100}])
def test_what_was_not_asked_is_not_added(request_: dict[str, object]) -> None:
    """A request without capabilities inherits the container's: it must not get an empty set instead."""
    assert runtime.trimmed(request_, frozenset()) == request_
