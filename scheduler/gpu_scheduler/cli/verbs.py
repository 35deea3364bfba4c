"""The verbs that people call, and their order in `--help`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_scheduler.cli.changing import strategy, submit
from gpu_scheduler.cli.completion import completion
from gpu_scheduler.cli.following import watch
from gpu_scheduler.cli.generating import generate_gpu_mapping, generate_template
from gpu_scheduler.cli.inspecting import health, nodes, status, workloads
from gpu_scheduler.cli.options import verb

if TYPE_CHECKING:
    import typer


def add_verbs(app: typer.Typer) -> None:
    """Make commands of them."""
    for work in (status, nodes, workloads, submit, strategy, watch, health, generate_gpu_mapping):
        app.command(work.__name__.replace("_", "-"))(verb(work))
    app.command("generate-template")(generate_template)
    app.command("completion")(completion)
