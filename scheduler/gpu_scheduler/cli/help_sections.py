"""`--help` with a section for each group of commands."""

from __future__ import annotations

from typing import Any

import click


class SectionedGroup(click.Group):
    """Lists its commands by section, in the order in which they were added."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.sections: dict[str, tuple[click.Command, ...]] = {}
        """Title → its commands."""

    def add_section(self, title: str, *commands: click.Command) -> None:
        """Add commands below a title."""
        self.sections[title] = commands
        for each in commands:
            self.add_command(each)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the commands, section by section."""
        widest = max(map(len, self.commands))
        for title, commands in self.sections.items():
            rows = [((each.name or "").ljust(widest), _summary(each.help or "")) for each in commands]
            with formatter.section(title):
                formatter.write_dl(rows)


def _summary(text: str) -> str:
    """Return the first paragraph of a command's help, whole: click would cut it."""
    return " ".join(text.strip().partition("\n\n")[0].split())
