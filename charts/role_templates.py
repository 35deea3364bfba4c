"""Renders a role's templates with expressions in place of inputs: what Jinja would decide, the text asks of Helm.

The templates are read as they are. Their syntax tree is changed before it is compiled: a condition, loop or comparison
on an Expression becomes the text of Helm's action, anything else stays Jinja's.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
import yaml
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.visitor import NodeTransformer

from charts import expressions
from charts.expressions import Expression, control

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES: Final = Path(__file__).resolve().parents[1] / "roles"


def rendered(role: str, template: str, inputs: Mapping[str, object]) -> str:
    """Return a role's template as a template of Helm's. `inputs` stand before the role's variables and defaults."""
    files = [ROLES / folder / "main.yml" for folder in (f"{role}/defaults", "common/vars", f"{role}/vars")]
    found = {key: value for file in files if file.is_file() for key, value in _read(file).items()}
    environment = _Environment(ROLES / role / "templates")
    given = {"ansible_role_name": role, "lookup": partial(_file, role), **found, **inputs}
    return expressions.helm_text(environment.get_template(template).render(given))


def _file(role: str, plugin: str, name: str) -> str:
    """Return a file of the role, as Ansible's lookup of this name; no other is used in a template of a chart."""
    assert plugin == "ansible.builtin.file"  # noqa: S101 - a template asks for nothing else
    return (ROLES / role / "files" / name).read_text(encoding="utf-8").rstrip()


def _read(file: Path) -> dict[str, object]:
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {}


class _Variables(Context):
    """The variables of a role: those whose text is a template are rendered when they are asked for, as Ansible does."""

    def resolve_or_missing(self, key: str) -> Any:
        """Return the variable's value."""
        return self._evaluated(super().resolve_or_missing(key))

    def _evaluated(self, value: Any) -> Any:
        match value:
            case str() if "{{" in value or "{%" in value:
                environment = self.environment
                assert isinstance(environment, _Environment)  # noqa: S101 - only that class makes this one
                return self._evaluated(environment.value_of(value, self))
            case dict():
                return {key: self._evaluated(each) for key, each in value.items()}
            case list():
                return [self._evaluated(each) for each in value]
        return value


class _Environment(jinja2.Environment):
    context_class = _Variables

    def __init__(self, folder: Path) -> None:
        super().__init__(loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined, trim_blocks=True)
        self.filters.update(
            to_json=expressions.to_json,
            combine=expressions.combine,
            default=expressions.default,
            bool=lambda value: value,
            hash=lambda value, _: Expression(f"{value.code} | sha256sum"),
            to_nice_yaml=lambda value, **_: Expression(f"toYaml {value.code}"),
        )
        self.globals.update(
            {
                "_if": lambda value: control(f"if {value.code}") if isinstance(value, Expression) else "",
                "_else": lambda value: control("else") if isinstance(value, Expression) else "",
                "_end": lambda value: control("end") if isinstance(value, Expression) else "",
                "_runs": lambda value, wanted: isinstance(value, Expression) or bool(value) is wanted,
                "_range": lambda value: (
                    control(f"range $each := {value.code}") if isinstance(value, Expression) else ""
                ),
                "_each": lambda value: [Expression("$each")] if isinstance(value, Expression) else value,
                "_both": expressions.both,
                "_either": expressions.either,
                "_not": expressions.negated,
                "_chosen": expressions.chosen,
            }
        )

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Conditions().visit(super()._parse(source, name, filename))
        return tree

    def value_of(self, text: str, variables: _Variables) -> object:
        """Return what a variable's template comes to: a value of any kind where it is one expression alone."""
        stripped = text.strip()
        if stripped.startswith("{{") and stripped.endswith("}}") and "{{" not in stripped[2:]:
            compiled = self.from_string(f"{{% set value = {stripped[2:-2]} %}}")
            module = compiled.make_module(variables.get_all())
            return module.__dict__["value"]
        return self.from_string(text).render(variables.get_all())


class _Conditions(NodeTransformer):
    """Turns conditions and loops into calls that know Expressions, beside the same conditions for all other values."""

    def __init__(self) -> None:
        self._names = (f"_condition_{number}" for number in itertools.count())

    def visit_If(self, node: nodes.If) -> list[nodes.Node]:  # noqa: N802 - the visitor's protocol
        """Return the branches with Helm's actions around them, which are empty where the condition is known."""
        for other in reversed(node.elif_):
            node.else_ = [nodes.If(other.test, other.body, [], node.else_)]
        node.elif_ = []
        self.generic_visit(node)
        return self._branches(node.test, node.body, node.else_)

    def visit_For(self, node: nodes.For) -> list[nodes.Node]:  # noqa: N802 - likewise
        """Return the loop, run once for a list that is not known yet."""
        self.generic_visit(node)
        name = next(self._names)
        loop = nodes.For(node.target, _call("_each", _load(name)), node.body, node.else_, node.test, node.recursive)
        return [
            nodes.Assign(nodes.Name(name, "store"), node.iter),
            nodes.Output([_call("_range", _load(name))]),
            loop,
            nodes.Output([_call("_end", _load(name))]),
        ]

    def visit_CondExpr(self, node: nodes.CondExpr) -> nodes.Node:  # noqa: N802 - likewise
        """Return a call that chooses."""
        self.generic_visit(node)
        return _call("_chosen", node.test, node.expr1, node.expr2 or nodes.Const(""))

    def visit_And(self, node: nodes.And) -> nodes.Node:  # noqa: N802 - likewise
        """Return a call."""
        self.generic_visit(node)
        return _call("_both", node.left, node.right)

    def visit_Or(self, node: nodes.Or) -> nodes.Node:  # noqa: N802 - likewise
        """Return a call."""
        self.generic_visit(node)
        return _call("_either", node.left, node.right)

    def visit_Not(self, node: nodes.Not) -> nodes.Node:  # noqa: N802 - likewise
        """Return a call."""
        self.generic_visit(node)
        return _call("_not", node.node)

    def _branches(self, test: nodes.Node, body: list[nodes.Node], otherwise: list[nodes.Node]) -> list[nodes.Node]:
        name = next(self._names)
        made: list[nodes.Node] = [
            nodes.Assign(nodes.Name(name, "store"), test),
            nodes.Output([_call("_if", _load(name))]),
            nodes.If(_call("_runs", _load(name), nodes.Const(True)), body, [], []),
        ]
        if otherwise:
            made += [
                nodes.Output([_call("_else", _load(name))]),
                nodes.If(_call("_runs", _load(name), nodes.Const(False)), otherwise, [], []),
            ]
        return [*made, nodes.Output([_call("_end", _load(name))])]


def _load(name: str) -> nodes.Name:
    return nodes.Name(name, "load")


def _call(name: str, *arguments: nodes.Node) -> nodes.Call:
    return nodes.Call(_load(name), list(arguments), [], None, None)
