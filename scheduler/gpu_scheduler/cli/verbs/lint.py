"""The verb that checks the text of manifests: lint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gpu_scheduler.cli.lint.formats import LintOutput
from gpu_scheduler.cli.options import (
    FAILED,
    SHARED,
    USAGE,
    LogLevel,
    Options,
    RefusedInputError,
    print_message,
    run_verb,
    warn,
)
from gpu_scheduler.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.lint.check import Checked

_EXAMPLE: Final = "example: gpu-scheduler lint deployment.yaml"


def _shared(name: str) -> Any:
    """Return the option that all verbs have by this name."""
    return SHARED[name].__metadata__[0]


def lint(  # noqa: PLR0913, PLR0917 - the options of a command
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help='Manifests, or folders of them; "-" is standard input.')
    ],
    live: Annotated[bool, typer.Option("--live", help="Ask the cluster too: nodes, GPUs, limits.")] = False,  # noqa: FBT002 - typer makes an option of it
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 for warnings too.")] = False,  # noqa: FBT002 - likewise
    output: Annotated[
        LintOutput, typer.Option("--output", "-o", help="What is printed.", case_sensitive=False)
    ] = LintOutput.TABLE,
    no_headers: Annotated[bool, _shared("no_headers")] = False,  # noqa: FBT002 - likewise
    namespace: Annotated[str | None, _shared("namespace")] = None,
    kubeconfig: Annotated[str | None, _shared("kubeconfig")] = None,
    context: Annotated[str | None, _shared("context")] = None,
    system_namespace: Annotated[str, _shared("system_namespace")] = SYSTEM_NAMESPACE,
    log_level: Annotated[LogLevel, _shared("log_level")] = "WARNING",
) -> None:
    """Say what is wrong with manifests, and where.

    Needs no cluster, unless --live. Exit code 1 if an error is found, 2 if a file cannot be read.
    """
    options = Options(namespace=namespace, kubeconfig=kubeconfig, context=context, system_namespace=system_namespace)

    async def run() -> int:
        checked = await _checked(files, options, live=live)
        _print(checked, output, headers=not no_headers)
        if checked.unread:
            return USAGE
        return FAILED if strict and checked.findings else checked.code

    raise typer.Exit(run_verb(run, log_level))


async def _checked(files: Sequence[str], options: Options, *, live: bool) -> Checked:
    from gpu_scheduler.cli.lint.check import check

    texts = _texts(files)
    if not live:
        return check(texts, options.namespace or "default")
    from gpu_scheduler.cli.cluster import reached
    from gpu_scheduler.cli.lint.live import check_live
    from gpu_scheduler.cli.live_cluster import read_live_cluster

    async with reached(options) as api:
        cluster = await read_live_cluster(api, options.system_namespace)
        namespace = options.namespace or api.namespace or "default"
    warn(cluster.unread)
    return check_live(check(texts, namespace, cluster.installation.policy), cluster)


def _texts(files: Sequence[str]) -> list[tuple[str, str]]:
    """Read all files. RefusedInputError if one cannot be opened, or is given twice as standard input."""
    from gpu_scheduler.cli.manifests.files import STDIN, read_text, shown, sources_of

    if files.count(STDIN) > 1:
        raise RefusedInputError(f'cannot read standard input twice; name "-" once ({_EXAMPLE})')
    sources = dict.fromkeys(source for path in files for source in sources_of(path, _EXAMPLE))
    return [(shown(source), read_text(source, _EXAMPLE)) for source in sources]


def _print(checked: Checked, output: LintOutput, *, headers: bool) -> None:
    """Print the findings. If a table is empty, print on standard error what was checked."""
    from gpu_scheduler.cli.lint.report import report
    from gpu_scheduler.core.text import number_of

    sys.stdout.write(report(checked.findings, output, headers=headers))
    if not checked.findings and output is LintOutput.TABLE:
        print_message(f"No findings in {number_of(len(checked.objects), 'object')}")
