import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from tests.objects import Object

PACKAGE = Path(__file__).resolve().parents[2]


def config(*names: str, current: str | None = None, **context: str) -> Object:
    """Return a kubeconfig with these contexts; each leads to a server of the same name."""
    return {
        **({"current-context": current} if current else {}),
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}"}} for name in names],
        "users": [{"name": name, "user": {"token": f"of-{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}} for name in names],
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
    assert (access.host, await access.get_api_key_with_prefix("BearerToken")) == ("http://b", "Bearer of-b")
    assert (await current()).host == "http://a"
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

    assert (await ConfigLoader(f"/nowhere{os.pathsep}{paths}")()).host == "http://b"


async def test_the_chosen_context_is_kept(tmp_path: Path) -> None:
    """Credentials are read again. A new current context would be another cluster."""
    paths = written(tmp_path, config("a", "b", current="a"))
    reload = ConfigLoader(paths)
    await reload()
    written(tmp_path, config("a", "b", current="b"))

    assert (await reload()).host == "http://a"


FAULTS: dict[str, tuple[Object | str, str | None, str]] = {
    "no context of that name": (config("a", "b"), "c", 'it has no context "c"; it knows a, b'),
    "no current context": (config("a"), None, "it names no current context; it knows a"),
    "no context at all": (config(), "a", 'it has no context "a"; it knows none'),
    "nothing": ("", None, ""),
    "a list": ("[1]", None, ""),
    "no YAML": ("a: [", None, "while parsing"),
    "a context without a cluster": (
        {"current-context": "a", "clusters": [], "contexts": [{"name": "a", "context": {"cluster": "a"}}]},
        None,
        "Invalid kube-config file",
    ),
    "a context without a name": ({"clusters": [], "contexts": [{}]}, "a", "Invalid kube-config file"),
}


@pytest.mark.parametrize(("body", "context", "why"), FAULTS.values(), ids=FAULTS)
async def test_an_unusable_kubeconfig_is_reported(
    body: Object | str, context: str | None, why: str, tmp_path: Path
) -> None:
    """The error is one sentence that names the file."""
    paths = written(tmp_path, body)
    with pytest.raises(ClientConfigError, match=f"^cannot reach a cluster through kubeconfig {paths}: {why}") as raised:
        await ConfigLoader(paths, context)()

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("kubeconfig", "loaded"), [(True, {"kubernetes"}), (False, set())])
def test_the_client_is_loaded_only_for_a_kubeconfig(kubeconfig: bool, loaded: set[str], tmp_path: Path) -> None:  # noqa: FBT001 - a row
    """A process inside the cluster does not import it. No process imports its typed classes (130 MB)."""
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

    packages = {"kubernetes", "kubernetes.aio.client.api", "kubernetes.aio.client.models.v1_pod"}
    assert packages & set(result.stdout.split()) == loaded
