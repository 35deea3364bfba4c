"""Rules for every role, checked in its files."""

from __future__ import annotations

import re

import jinja2
import pytest

from tests.contracts import roles
from tests.contracts.roles import ROLES, ROOT

# The role itself checks `raw`.
TYPES = {"str": str, "path": str, "int": int, "bool": bool, "list": list, "dict": dict, "raw": object}


@pytest.mark.parametrize("role", ROLES)
def test_argument_spec_equals_defaults(role: str) -> None:
    """An input's default is the same in defaults/main.yml and in the argument specification."""
    stated = {name: option["default"] for name, option in roles.options(role).items() if "default" in option}

    assert roles.defaults(role) == stated


@pytest.mark.parametrize("role", ROLES)
def test_input_is_described_and_named_after_its_role(role: str) -> None:
    """Every input's name begins with its role's name, and its description says what it controls."""
    for name, option in roles.options(role).items():
        assert name.startswith(f"{role}_"), name
        assert option.get("description"), name


@pytest.mark.parametrize("role", ROLES)
def test_default_is_of_its_type(role: str) -> None:
    """A default's value has the type in the argument specification."""
    for name, option in roles.options(role).items():
        assert isinstance(option["default"], TYPES[option["type"]]), name
        assert option["default"] in option.get("choices", [option["default"]]), name


@pytest.mark.parametrize("role", ROLES)
def test_default_has_a_sentence_above_it(role: str) -> None:
    """A comment right above each default explains it in a whole sentence.

    An empty list or map shows an element below.
    """
    lines = (ROOT / "roles" / role / "defaults" / "main.yml").read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"[a-z]\w*:", line):
            assert re.fullmatch(r"# \S.*\.", lines[number - 1]), f"{role}: {line}"
            assert not line.endswith((": []", ": {}")) or lines[number + 1].startswith("#   "), f"{role}: {line}"


def test_play_role_tag_and_readme_row_agree() -> None:
    """A role's tag is its name, and README's table of tags has exactly the play's roles, in their order."""
    play = roles.play_roles()
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)

    assert {role: [role] for role in play} == play
    assert list(play) == table
    assert sorted(play) == list(ROLES)


@pytest.mark.promise("up-2", "up-5")
@pytest.mark.parametrize("inventory", ["kind", "existing", "aks"])
def test_play_installs_everything_with_each_inventory(inventory: str) -> None:
    """With the variables that an inventory ships, the play leaves no role out but those that make a kind cluster."""
    shared = [] if inventory == "kind" else [roles.read("inventory", "existing", "group_vars", "all", "facts.yml")]
    own = roles.read("inventory", inventory, "group_vars", "all", "facts.yml")
    facts = {name: value for each in (*shared, own) for name, value in each.items()}
    (play,) = roles.read("playbooks", "site.yml")
    conditions = {name: entry.get("when", "true") for name, entry in roles.imported_roles(play)}

    assert set(conditions) == set(ROLES)
    left_out = [role for role, when in conditions.items() if not jinja2.Environment().compile_expression(when)(**facts)]  # noqa: S701 - no HTML
    assert left_out == ([] if inventory == "kind" else ["container_engine", "node_image", "kind_cluster"])


@pytest.mark.parametrize("role", ROLES)
def test_role_has_a_page(role: str) -> None:
    """Each role's README begins with its name."""
    assert (ROOT / "roles" / role / "README.md").read_text().startswith(f"# {role}\n")
