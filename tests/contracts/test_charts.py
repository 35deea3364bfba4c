"""The charts are what their generator makes, and the generator refuses what it cannot say in Helm's language.

tests/integration/test_charts.py compares what both charts make with what `make manifests` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import yaml

from charts import generate, role_templates
from charts.expressions import Expression, UnsupportedError
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

A: Final = Expression("$.Values.a")


REFUSED: Final = {
    "a condition within a line": ("x: y{% if a %}z{% endif %}", "cannot write a condition within a line"),
    "a decision that only Helm can make": ("{{ ['x'] | select('in', [a]) | list }}", "cannot decide"),
    "a walk through a value": ("{{ a | list }}", "cannot walk through"),
    "two braces of its own": ("{{ '{' ~ '{' }}", "cannot write {{ into a chart"),
}


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that renders a text as a role's template."""
    (tmp_path / "role" / "templates").mkdir(parents=True)
    monkeypatch.setattr(role_templates, "ROLES", tmp_path)

    def rendered(text: str) -> str:
        (tmp_path / "role" / "templates" / "x.j2").write_text(text)
        return role_templates.rendered("role", "x.j2", {"a": A})

    return rendered


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_helm_cannot_say_is_refused(render: object, text: str, message: str) -> None:
    """Nothing is left out silently."""
    assert callable(render)
    with pytest.raises(UnsupportedError, match=message):
        render(text)


def test_charts_are_fresh() -> None:
    """The files are what `make fmt` makes of the roles, and there is no other file that says it was made."""
    made = generate.files()

    stale = [
        str(path.relative_to(ROOT)) for path, text in made.items() if not path.is_file() or path.read_text() != text
    ]
    found = generate.CHARTS.glob("*/templates/*.yaml")
    left = [path for path in found if path not in made and path.read_text().startswith("{{- /* Made by")]

    assert not stale, f"run `make fmt`: {stale}"
    assert not left


def test_values_are_described_and_known_to_the_schema() -> None:
    """Each value has a default of the type that the schema demands, and each key of the schema is in values.yaml."""
    for chart in generate.TEMPLATES:
        folder = generate.CHARTS / chart
        values = yaml.safe_load((folder / "values.yaml").read_text())
        schema = yaml.safe_load((folder / "values.schema.json").read_text())

        assert set(schema["properties"]) - {"global"} == set(values)
        for name, part in schema["properties"].items():
            if name != "resources":
                assert set(part.get("properties", {})) == (set(values[name]) if part.get("properties") else set())
