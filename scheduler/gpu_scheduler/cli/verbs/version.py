"""The verb version: of the command line, of the installed scheduler, of the API server."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from gpu_scheduler import names
from gpu_scheduler.cli.cluster import reached
from gpu_scheduler.cli.options import FAILED, warn

if TYPE_CHECKING:
    from gpu_scheduler.cli.options import Options
    from gpu_scheduler.kube.http.client import ApiClient

View = dict[str, Any]


@click.option("--client", is_flag=True, help="Only of this command; needs no cluster.")
async def version(options: Options, *, client: bool = False) -> int:
    """Show the versions of this command, of the scheduler and of the API server.

    The scheduler's is the image of its Deployment. Exit code 1 if it is not installed, or may not be read.
    """
    from gpu_scheduler.cli.output import Column, Listing, PrintedTable, render
    from gpu_scheduler.cli.own_release import own_release

    number, commit = own_release()
    view: View = {"client": {"version": number, "commit": commit}}
    unread = ""
    if not client:
        async with reached(options) as api:
            image, unread = await _image(api, options.system_namespace)
            view |= {"scheduler": {"image": image}, "server": {"version": await _server(api)}}
    rows = [{"what": "Client", "how": f"{number} (commit {commit})"}]
    if not client:
        absent = "unknown" if unread else f"not installed in namespace {options.system_namespace}"
        rows.append({"what": "Scheduler", "how": image or absent})
        rows.append({"what": "API server", "how": view["server"]["version"]})
    table = PrintedTable(
        (Column("WHAT", lambda row: row["what"]), Column("VERSION", lambda row: row["how"], wraps=20)), rows
    )
    sys.stdout.write(render(Listing("Version", [view], table, table), options))
    warn((unread,))
    return 0 if client or image else FAILED


async def _image(api: ApiClient, namespace: str) -> tuple[str | None, str]:
    """Return the image of the scheduler's Deployment; None if there is none, or it may not be read, and why."""
    from gpu_scheduler.cli.installation import missing_right
    from gpu_scheduler.kube.http.client import segment
    from gpu_scheduler.kube.lists import UnlistedError, get_one

    name = names.SCHEDULER_NAME
    path = f"/apis/apps/v1/namespaces/{segment(namespace)}/deployments/{name}"
    try:
        deployment = await get_one(api, f"Deployment {name} of namespace {namespace}", path, json.loads)
    except UnlistedError as error:
        return None, missing_right(error, f"get deployments/{name} -n {namespace}")
    containers = [] if deployment is None else deployment["spec"]["template"]["spec"]["containers"]
    return next((str(each["image"]) for each in containers if each.get("image")), None), ""


async def _server(api: ApiClient) -> str:
    from gpu_scheduler.kube.lists import get_one

    found = await get_one(api, "the API server's version", "/version", json.loads)
    return "unknown" if found is None else str(found.get("gitVersion", "unknown"))
