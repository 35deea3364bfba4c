"""What Alertmanager sends into a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.contracts.rendering import once_rendered, only
from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = {"slack": ("slackConfigs", "slack_configs"), "teams": ("msteamsv2Configs", "msteamsv2_configs")}


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """Return a function that renders role observability with a receiver."""
    return once_rendered(
        tmp_path_factory, ["observability"], {kind: {"observability_receiver": kind} for kind in KINDS}
    )


@pytest.mark.promise("observe-2")
@pytest.mark.parametrize("kind", KINDS)
def test_the_message_is_that_of_the_example(render: Callable[[str], list[dict[str, Any]]], kind: str) -> None:
    """In each chat. amtool accepts the example. A message that arrives is tested with Slack; suite plays adds Teams."""
    ours, named = KINDS[kind]
    examples = yaml.safe_load((ROOT / "examples" / "alertmanager.yml").read_text())["receivers"]
    (example,) = next(each[named] for each in examples if named in each)
    (receiver,) = only(render(kind), "AlertmanagerConfig")["spec"]["receivers"]
    (made,) = receiver[ours]

    assert set(receiver) == {"name", ours}
    assert (made["title"], made["text"], made["sendResolved"]) == (
        example["title"],
        example["text"],
        example["send_resolved"],
    )
    (address,) = (value for key, value in made.items() if key in {"apiURL", "webhookURL"})
    assert address == {"name": "alert-webhook", "key": "webhook-url"}
