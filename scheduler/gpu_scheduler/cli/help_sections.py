"""`--help` with a section for each group of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter


class SectionedGroup(TyperGroup):
    """Lists the commands under the `rich_help_panel` of each, in the order of their registration.

    Without rich, typer itself knows no sections.
    """

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands, section by section."""
        sections: dict[str, list[str]] = {}
        for name in self.list_commands(ctx):
            sections.setdefault(str(getattr(self.commands[name], "rich_help_panel", "")), []).append(name)
        widest = max(map(len, self.commands))
        for title, names in sections.items():
            rows = [(name.ljust(widest), _summary(self.commands[name].help or "")) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)


def _summary(text: str) -> str:
    """Return the first paragraph of a command's help, whole: typer would cut it."""
    return " ".join(text.strip().partition("\n\n")[0].split())
