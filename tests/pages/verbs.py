"""docs/verbs.md: the verbs of the command line, from its parser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from gpu_scheduler.cli.command_line import OF_LISTINGS, SHARED
from gpu_scheduler.cli.main import app
from tests.contracts.roles import ROOT
from tests.pages.parts import Page, code, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PAGES: Final = {
    "certificates": "cli.md#the-webhooks-certificate-as-files",
    "controller": "settings.md#run-and-controller",
    "drain": "cordon.md",
    "driver": "settings.md#driver",
    "history": "replay.md#what-was-decided",
    "issue": "settings.md#renew-and-issue",
    "monitor": "settings.md#monitor",
    "renew": "settings.md#renew-and-issue",
    "run": "settings.md#run",
    "snapshot": "replay.md",
    "strategy": "strategies.md",
    "submit": "workloads.md",
    "uncordon": "cordon.md",
    "watch": "cli.md#watch",
    "webhook": "settings.md#webhook",
}
"""Verb → the page that has more, where no page has the verb's name."""
_HEAD: Final = ("argument or option", "default", "meaning")


def pages() -> Iterator[Page]:
    """Yield the page with the verbs by section and the options that they share, and the page with the list of verbs."""
    context = click.Context(app, info_name=app.name)
    yield Page(ROOT / "docs/cli.md", {"list of verbs": tuple(table(("verb", "what it does"), _list()))})
    parts = {
        "verbs": tuple(_verbs(context)),
        "options of every verb": tuple(table(_HEAD, _options(SHARED, context))),
        "options of listings": tuple(table(_HEAD, _options(OF_LISTINGS, context))),
    }
    yield Page(ROOT / "docs/verbs.md", parts)


def _list() -> Iterator[tuple[str, str]]:
    for commands in app.sections.values():
        for each in commands:
            yield f"[`{each.name}`](verbs.md#{each.name})", _paragraphs(each)[0]


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(each.split()) for each in (command.help or "").split("\n\n")]


def _verbs(context: click.Context) -> Iterator[str]:
    for title, commands in app.sections.items():
        yield f"## {title}"
        yield ""
        for command in commands:
            yield from _verb(command, click.Context(command, info_name=command.name, parent=context))


def _verb(command: click.Command, context: click.Context) -> Iterator[str]:
    name = command.name or ""
    yield f"### {name}"
    yield ""
    yield f"`{context.command_path} {' '.join(command.collect_usage_pieces(context))}`"
    yield ""
    for paragraph in _paragraphs(command):
        yield paragraph
        yield ""
    own = [each for each in command.params if each not in (*SHARED, *OF_LISTINGS)]
    if own:
        yield from table(_HEAD, _options(own, context))
        yield ""
    last = " ".join((*_shared(command), *_more(name)))
    if last:
        yield last
        yield ""


def _shared(command: click.Command) -> Iterator[str]:
    """Yield which of the shared options the command has."""
    if any(each in SHARED for each in command.params):
        named = {each.name for each in command.params}
        left_out = [each for each in SHARED if each.name not in named]
        but = f", but for {', '.join(code(each.opts[0]) for each in left_out)}" if left_out else ""
        also = " and those [of listings](#options-of-listings)" if OF_LISTINGS[0] in command.params else ""
        yield f"It has the options [of every verb](#options-of-every-verb){also}{but}."


def _more(name: str) -> Iterator[str]:
    page = _PAGES.get(name, f"{name}.md")
    if (ROOT / "docs" / page.partition("#")[0]).exists():
        yield f"More: [{page.partition('.')[0]}]({page})."


def _options(params: Iterable[click.Parameter], context: click.Context) -> Iterator[tuple[str, str, str]]:
    """Yield how each option or argument is written, its default and its meaning."""
    for each in params:
        info: dict[str, Any] = each.to_info_dict()
        if isinstance(each, click.Option):
            names = ", ".join(sorted(each.opts, key=len))
            value = "" if each.is_flag else f" {each.make_metavar(context)}"
            written = code(names + value)
        else:
            written = code(each.make_metavar(context))
        default = "required" if each.required else _default(info["default"], flag=bool(info.get("is_flag")))
        yield written, default, str(info.get("help") or "")


def _default(value: object, *, flag: bool) -> str:
    if flag or not isinstance(value, str | int):
        return ""
    return code(str(value).lower() if isinstance(value, bool) else str(value))
