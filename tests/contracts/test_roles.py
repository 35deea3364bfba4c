"""What every role promises, read from its files."""

from __future__ import annotations

import re

import pytest

from tests import readmes
from tests.contracts import roles
from tests.contracts.roles import ROLES, ROOT

# `raw` is checked by the role itself.
TYPES = {"str": str, "path": str, "int": int, "bool": bool, "list": list, "dict": dict, "raw": object}


@pytest.mark.parametrize("role", ROLES)
def test_argument_spec_equals_defaults(role: str) -> None:
    """An input's default is the same in defaults/main.yml and in the argument specification."""
    stated = {name: option["default"] for name, option in roles.options(role).items() if "default" in option}

    assert roles.defaults(role) == stated


@pytest.mark.parametrize("role", ROLES)
def test_input_is_described_and_named_after_its_role(role: str) -> None:
    """Every input begins with its role's name and says what it controls."""
    for name, option in roles.options(role).items():
        assert name.startswith(f"{role}_"), name
        assert option.get("description"), name


@pytest.mark.parametrize("role", ROLES)
def test_default_is_of_its_type(role: str) -> None:
    """A default's value has the type that the argument specification asks of the user."""
    for name, option in roles.options(role).items():
        assert isinstance(option["default"], TYPES[option["type"]]), name
        assert option["default"] in option.get("choices", [option["default"]]), name


@pytest.mark.parametrize("role", ROLES)
def test_default_has_a_sentence_above_it(role: str) -> None:
    """Every default is explained by a whole sentence right above it; an empty list or map shows an element below."""
    lines = (ROOT / "roles" / role / "defaults" / "main.yml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[a-z]\w*:", line):
            assert re.fullmatch(r"# \S.*\.", lines[number - 1]), f"{role}: {line}"
            assert not line.endswith((": []", ": {}")) or lines[number + 1].startswith("#   "), f"{role}: {line}"


@pytest.mark.parametrize("role", ROLES)
def test_page_has_the_inputs_as_they_are(role: str) -> None:
    """The table of inputs in a role's README is what `python tests/readmes.py` writes."""
    page = (ROOT / "roles" / role / "README.md").read_text()

    assert readmes.with_inputs(page, role) == page


def test_play_role_tag_and_readme_row_agree() -> None:
    """A role's tag is its name, and README's table of tags has exactly the play's roles, in its order."""
    play = roles.play_roles()
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)

    assert {role: [role] for role in play} == play
    assert list(play) == table
    assert sorted(play) == list(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_role_has_a_page(role: str) -> None:
    """Each role's README begins with its name."""
    assert (ROOT / "roles" / role / "README.md").read_text().startswith(f"# {role}\n")
