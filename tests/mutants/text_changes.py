"""Makes mutants of YAML, Jinja and CEL: one number, boolean, operator or word of a line becomes another."""

from __future__ import annotations

import re
from typing import Final

from tests.mutants.python_changes import Change

RULES: Final = tuple(
    (re.compile(found), other)
    for found, other in (
        (r"\btrue\b", "false"),
        (r"\bfalse\b", "true"),
        (r"==", "!="),
        (r"!=", "=="),
        (r"&&", "||"),
        (r"\|\|", "&&"),
        (r" <= ", " < "),
        (r" >= ", " > "),
        (r" < ", " <= "),
        (r" > ", " >= "),
        (r"!(?=[a-z(])", ""),
        (r"\.all\(", ".exists("),
        (r"\.exists\(", ".all("),
        (r" and ", " or "),
        (r" or ", " and "),
        (r"\bis not defined\b", "is defined"),
        (r"(?<=[\"'])[A-Za-z][\w./-]*(?=[\"'])", r"\g<0>x"),
        # A value without quotes, and a word of a list.
        (r"(?<=: )[A-Za-z][\w./-]*$", r"\g<0>x"),
        (r"(?<=^- )[A-Za-z][\w./-]*$", r"\g<0>x"),
        (r"(?<=[\[,] )[A-Za-z][\w./-]*(?=[,\]])|(?<=\[)[A-Za-z][\w./-]*(?=[,\]])", r"\g<0>x"),
    )
)
NUMBER: Final = re.compile(r"(?<![\w.-])\d+(?![\w.-])")
REMARK: Final = re.compile(r"\s*(#|\{#|//)|.*\b(description|summary|message)\b")
"""Lines that only people read."""


def text_changes(file: str, text: str) -> list[Change]:
    """Return the mutants of all lines but remarks."""
    lines = text.splitlines(keepends=True)
    changes: dict[str, Change] = {}
    for index, line in enumerate(lines):
        if REMARK.match(line):
            continue
        code = line.partition(" # ")[0].rstrip()
        lead = code[: len(code) - len(code.lstrip())]
        places = [(found, found.expand(other)) for rule, other in RULES for found in rule.finditer(code.strip())]
        places += [(found, str(int(found[0]) + 1)) for found in NUMBER.finditer(code.strip())]
        for found, other in places:
            changed = f"{lead}{code.strip()[: found.start()]}{other}{code.strip()[found.end() :]}{line[len(code) :]}"
            after = "".join((*lines[:index], changed, *lines[index + 1 :]))
            changes.setdefault(after, Change(file, index + 1, text, after))
    return list(changes.values())
