"""The verb that checks the text of manifests: lint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from gpu_scheduler.cli.command_line import PATH
from gpu_scheduler.cli.lint.formats import LintOutput
from gpu_scheduler.cli.options import FAILED, USAGE, RefusedInputError, print_message, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.cli.lint.check import Checked
    from gpu_scheduler.cli.options import Options

_EXAMPLE: Final = "example: gpu-scheduler lint deployment.yaml"


@click.argument(
    "files",
    type=PATH,
    nargs=-1,
    required=True,
    metavar="FILE...",
    help='Manifests, or folders of them; "-" is standard input.',
)
@click.option("--live", is_flag=True, help="Ask the cluster too: nodes, GPUs, limits.")
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too.")
@click.option("--output", "-o", type=click.Choice(LintOutput, case_sensitive=False), help="What is printed.")
async def lint(
    options: Options,
    files: Sequence[str],
    *,
    live: bool = False,
    strict: bool = False,
    output: LintOutput = LintOutput.TABLE,
) -> int:
    """Say what is wrong with manifests, and where.

    Needs no cluster, unless --live. Exit code 1 if an error is found, 2 if a file cannot be read.
    """
    checked = await _checked(files, options, live=live)
    _print(checked, output, headers=not options.no_headers)
    if checked.unread:
        return USAGE
    return FAILED if strict and checked.findings else checked.code


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
