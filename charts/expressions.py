"""Values of a chart as a role's template sees them: each prints itself as the Go template that Helm evaluates later.

A role's template is rendered with Expressions in place of its inputs. What Jinja decides of them it decides here, into
text of Helm's language: a condition becomes `{{ if }}`, a filter becomes one of Sprig's functions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from jinja2.filters import do_default

# Characters of Unicode's private use, which no template of ours has: text filters pass them through unchanged.
_OPEN, _CLOSE, _LINE = "\ue000", "\ue001", "\ue002"
_TOKEN: Final = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
_OTHERS: Final = re.compile(f"{{{{[^`{_OPEN}]*?}}}}")
_CONTROL: Final = re.compile(f"{_LINE}([^{_CLOSE}]*){_CLOSE}")


class UnsupportedError(Exception):
    """A template does with an input what has no counterpart in Helm's language."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An expression of Helm's language."""

    code: str
    is_list_of_strings: bool = False

    def __str__(self) -> str:
        """Return what the template's text has in the value's place until `helm_text` puts the expression there."""
        return f"{_OPEN}{self.code}{_CLOSE}"

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # an expression, as all that is asked of it
        """Return whether Helm finds them equal."""
        return Expression(f"(eq {self.code} {code_of(other)})")

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]  # an expression, as all that is asked of it
        """Return whether Helm finds them different."""
        return Expression(f"(ne {self.code} {code_of(other)})")

    __hash__ = None  # type: ignore[assignment]  # equality is not known yet

    def __bool__(self) -> bool:
        """Refuse: whoever asks would decide now what only Helm knows."""
        raise UnsupportedError(f"cannot decide {self.code} before Helm does; use it in an if, a filter or as text")

    def __iter__(self) -> Any:
        """Refuse, as `__bool__` does."""
        raise UnsupportedError(f"cannot walk through {self.code} before Helm does; use it in a for or as text")

    def __radd__(self, before: list[Any]) -> Expression:
        """Return a list with this one behind it."""
        return Expression(f"(concat {code_of(before)} {self.code})", is_list_of_strings=True)

    def __add__(self, after: list[Any]) -> Expression:
        """Return this list with another behind it."""
        return Expression(f"(concat {self.code} {code_of(after)})", is_list_of_strings=True)

    def __getitem__(self, key: object) -> Expression:
        """Return an entry; of a missing key nothing, which `default` replaces."""
        return Expression(f"(index {self.code} {code_of(key)})")


def code_of(value: object) -> str:
    """Return any value as Helm's language writes it: expressions as they are, even inside lists and mappings."""
    match value:
        case Expression():
            return value.code
        case str():
            return _text_code(value)
        case bool() | int() | float():
            return json.dumps(value)
        case list() | tuple():
            return f"(list{''.join(f' {code_of(each)}' for each in value)})"
        case dict():
            return f"(dict{''.join(f' {code_of(key)} {code_of(each)}' for key, each in value.items())})"
    raise UnsupportedError(f"cannot write {value!r} in Helm's language")


def _text_code(text: str) -> str:
    texts, codes = _parts(text)
    if not codes:
        return _quoted(text)
    pattern = "%v".join(part.replace("%", "%%") for part in texts)
    return f"(printf {_quoted(pattern)} {' '.join(codes)})"


def _parts(text: str) -> tuple[list[str], list[str]]:
    """Return the texts around the expressions, and the expressions between them."""
    parts = _TOKEN.split(text)
    return parts[::2], parts[1::2]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def to_json(value: object) -> str:
    """Return the value as JSON, with expressions where they are not known yet."""
    match value:
        case Expression(is_list_of_strings=True):
            return str(Expression(f'include "gpu-scheduler.jsonList" {value.code}'))
        case Expression():
            return str(Expression(f"{value.code} | toJson"))
        case dict():
            return "{" + ", ".join(f"{to_json(key)}: {to_json(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(to_json, value)) + "]"
        case str():
            # Only what stands between expressions is text of ours.
            texts, codes = _parts(value)
            escaped = [_quoted(text)[1:-1] for text in texts]
            places = [str(Expression(code)) for code in codes]
            return '"' + "".join(part for pair in zip(escaped, [*places, ""], strict=True) for part in pair) + '"'
    return json.dumps(value, ensure_ascii=False)


def combine(first: Any, *others: Any, recursive: bool = False) -> object:
    """Return the mappings as one, later ones over earlier ones, as Ansible's filter of this name."""
    if not any(isinstance(each, Expression) for each in (first, *others)):
        merged: dict[Any, Any] = {}
        for each in (first, *others):
            merged |= each
        return merged
    del recursive  # Helm's function always goes down
    # It writes into the first, and hands on parts of the others: what belongs to the values is copied.
    known = [each for each in (first, *others) if isinstance(each, Expression) or each]
    parts = (f"(deepCopy {each.code})" if isinstance(each, Expression) else code_of(each) for each in known)
    return Expression(f"(mustMergeOverwrite {' '.join(parts)})")


def default(value: object, other: object = "", also_falsy: bool = False) -> object:  # noqa: FBT001, FBT002 - Jinja's own
    """Return `other` where there is no value, as Jinja's filter; Helm's takes an empty value for none."""
    if isinstance(value, Expression):
        return Expression(f"(default {code_of(other)} {value.code})")
    return do_default(value, other, also_falsy)


def both(first: object, second: object) -> object:
    """Return whether both are true."""
    if isinstance(first, Expression) or isinstance(second, Expression):
        known = [each for each in (first, second) if not isinstance(each, Expression)]
        if not all(known):
            return False
        codes = [each.code for each in (first, second) if isinstance(each, Expression)]
        return Expression(codes[0]) if len(codes) == 1 else Expression(f"(and {' '.join(codes)})")
    return first and second


def either(first: object, second: object) -> object:
    """Return whether one of them is true."""
    if isinstance(first, Expression) or isinstance(second, Expression):
        return Expression(f"(or {code_of(first)} {code_of(second)})")
    return first or second


def negated(value: object) -> object:
    """Return whether it is false."""
    return Expression(f"(not {value.code})") if isinstance(value, Expression) else not value


def chosen(condition: object, first: object, second: object) -> object:
    """Return one of the two."""
    if isinstance(condition, Expression):
        return Expression(f"(ternary {code_of(first)} {code_of(second)} (not (empty {condition.code})))")
    return first if condition else second


def control(code: str) -> str:
    """Return the place of an action that prints nothing: if, else, range, end."""
    return f"{_LINE}{code}{_CLOSE}"


def helm_text(text: str) -> str:
    """Return rendered text with expressions as Helm's actions, and each control action on a line of its own.

    Actions in the text itself are somebody else's, Prometheus' or Grafana's: Helm prints them as they are.
    """
    if "{{" in _OTHERS.sub("", text):
        raise UnsupportedError("cannot write {{ into a chart without }} on the same line")
    text = _OTHERS.sub(lambda found: f"{{{{ `{found[0]}` }}}}", text)
    lines: list[str] = []
    for line in text.split("\n"):
        controls = _CONTROL.findall(line)
        rest = _CONTROL.sub("", line)
        if controls and _between(line):
            raise UnsupportedError(f"cannot write a condition within a line: {rest.strip()}")
        lines += [f"{{{{- {code} }}}}" for code in controls]
        if rest.strip() or not controls:
            lines.append(rest)
    return "\n".join(_TOKEN.sub(lambda found: f"{{{{ {found[1]} }}}}", line) for line in lines)


def _between(line: str) -> bool:
    """Whether text stands before a control action: it would be cut from what belongs to it."""
    last = line.rfind(_LINE)
    return bool(_CONTROL.sub("", line[:last]).strip())
