"""Which rights the scheduler asks for, and what it says if some are missing."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import pytest

from gpu_scheduler.kube.http.client import ApiResponse, NoResponseError
from gpu_scheduler.process.lifecycle import UsageError
from gpu_scheduler.scheduler import access
from gpu_scheduler.scheduler.access import Denied, Missing, Use, find_denied, needed_rights
from gpu_scheduler.settings import RunSettings
from tests.messages import text_of

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient
    from tests.objects import Object

ACCOUNT: Final = "system:serviceaccount:kube-system:gpu-scheduler"
SETTINGS: Final = RunSettings(kubernetes_namespace="system", monitor_namespace="monitors")
Asked = tuple[str, str, str]


class Reviewer:
    """An API server that only answers reviews. `denied` are verb, resource and name of the rights that are missing.

    `rules` are the rules that it lists, by their namespace.
    """

    def __init__(
        self,
        *denied: Asked,
        rules: dict[str, list[Object]] | None = None,
        account: ApiResponse | None = None,
        refused: ApiResponse | None = None,
        kinds: bool = True,
    ) -> None:
        self.denied = denied
        self.rules = rules
        self.asked: list[Asked] = []
        self.at_once = self.most_at_once = 0
        self._account = account or response({"status": {"userInfo": {"username": ACCOUNT}}})
        self._refused = refused
        self._kinds = kinds

    async def call(self, method: str, path: str, *, body: bytes = b"") -> ApiResponse:
        if method == "GET":
            assert path == "/apis/agentaflow.io/v1"
            return response({}, 200 if self._kinds else 404)
        if path.endswith("/selfsubjectreviews"):
            return self._account
        if path.endswith("/selfsubjectrulesreviews"):
            found = None if self.rules is None else self.rules[json.loads(body)["spec"]["namespace"]]
            return response({}, 403) if found is None else response({"status": {"resourceRules": found}})
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        of = json.loads(body)["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (of["resource"], of["subresource"])))
        right = of["verb"], f"{resource}.{of['group']}".rstrip("."), of["name"]
        self.asked.append(right)
        return self._refused or response({"status": {"allowed": right not in self.denied}})


def response(body: object, status: int = 201) -> ApiResponse:
    return ApiResponse(status, json.dumps(body).encode())


async def find(reviewer: object, *, leader_elect: bool = True) -> Denied:
    return await find_denied(cast("ApiClient", reviewer), SETTINGS, leader_elect=leader_elect)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_with_all_rights_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Where no rules are listed, each verb is asked for once, few at a time."""
    reviewer = Reviewer()

    assert await find(reviewer) == {}

    assert warnings(caplog) == []
    assert len(reviewer.asked) == len(set(reviewer.asked)) == 27
    assert reviewer.most_at_once == access.AT_ONCE


def rule(verbs: str, resource: str, group: str = "", *named: str) -> Object:
    """Return a rule as the API server lists it: it leaves out what is empty."""
    found = {"verbs": verbs.split(), "apiGroups": [group], "resources": [resource]}
    return {**found, "resourceNames": list(named)} if named else found


LISTED: Final[dict[str, tuple[Object, set[str]]]] = {
    "a verb": (rule("watch", "nodes"), {"watch nodes"}),
    "all verbs": (rule("*", "nodes"), {"watch nodes", "list nodes"}),
    "all resources": (rule("watch", "*"), {"watch nodes", "watch pods", "watch persistentvolumes"}),
    "a resource without its subresource": (rule("*", "pods"), {"watch pods", "list pods", "get pods"}),
    "a subresource": (rule("create", "pods/binding"), {"create pods/binding"}),
    "another group": (rule("*", "nodes", "metrics.k8s.io"), set()),
    "all groups": (rule("create", "events", "*"), {"create events.events.k8s.io"}),
    "one object": (rule("*", "nodes", "", "node1"), set()),
    "no resource": ({"verbs": ["*"], "nonResourceURLs": ["*"]}, set()),
}


@pytest.mark.parametrize(("listed", "known"), LISTED.values(), ids=LISTED)
async def test_what_a_rule_allows_is_not_asked_for(listed: Object, known: set[str]) -> None:
    """It counts for rights in all namespaces only if no namespace can have granted it."""
    everywhere, reviewer = Reviewer(), Reviewer(rules={"-": [listed], "system": [], "monitors": []})
    await find(everywhere)
    await find(reviewer)

    unasked = {f"{verb} {resource}" for verb, resource, _ in set(everywhere.asked) - set(reviewer.asked)}
    assert known <= unasked
    assert bool(unasked) is bool(known)
    here = Reviewer(rules={"-": [], "system": [listed], "monitors": [listed]})
    await find(here)
    assert {"watch nodes", "list nodes", "get pods"} <= {f"{verb} {resource}" for verb, resource, _ in here.asked}


async def test_a_rule_for_one_object_counts_in_its_namespace() -> None:
    """The Lease, the settings and the limits are named. A right to create cannot be."""
    rules = [
        rule("get update", "leases", "coordination.k8s.io", "gpu-scheduler"),
        rule("list watch", "configmaps", "", "gpu-scheduler-settings", "gpu-scheduler-limits"),
    ]
    reviewer = Reviewer(rules={"-": [rule("*", "*", "*")], "system": rules, "monitors": [rule("*", "*", "*")]})

    assert await find(reviewer) == {}

    assert reviewer.asked == [("create", "leases.coordination.k8s.io", "")]


async def test_without_an_election_no_right_to_a_lease_is_needed() -> None:
    """The monitors' Leases are others: they are named by their namespace."""
    reviewer = Reviewer()
    await find(reviewer, leader_elect=False)

    assert [right for right in reviewer.asked if "leases" in right[1]] == [
        ("list", "leases.coordination.k8s.io", ""),
        ("watch", "leases.coordination.k8s.io", ""),
    ]


OPTIONAL: Final[dict[str, tuple[Asked, Use, str]]] = {
    "watch nodes": (
        ("watch", "nodes", ""),
        Use.NODE_CHANGES,
        "watch nodes",
    ),
    "one of two verbs": (
        ("watch", "persistentvolumes", ""),
        Use.VOLUMES,
        "watch persistentvolumes",
    ),
    "a subresource": (
        ("patch", "pods/status", ""),
        Use.CONDITIONS,
        "patch pods/status",
    ),
    "one object": (
        ("watch", "configmaps", "gpu-scheduler-limits"),
        Use.LIMITS,
        'watch configmaps "gpu-scheduler-limits" in namespace system',
    ),
}


@pytest.mark.parametrize(("right", "use", "text"), OPTIONAL.values(), ids=OPTIONAL)
async def test_a_missing_right_is_one_line(right: Asked, use: Use, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """Which right, what for, and what happens without it."""
    denied = await find(Reviewer(right))

    assert {key: value.verbs for key, value in denied.items()} == {use: (right[0],)}
    purpose, effect = denied[use].needed_to, denied[use].without_it
    assert warnings(caplog) == [text_of("the scheduler lacks a right", rights=text, purpose=purpose, effect=effect)]
    assert purpose != effect != ""


GRANTS: Final = {
    Use.NODE_CHANGES: (
        "kubectl create clusterrole gpu-scheduler-node-changes --verb=watch --resource=nodes && "
        "kubectl create clusterrolebinding gpu-scheduler-node-changes --clusterrole=gpu-scheduler-node-changes "
        "--user='jane doe'"
    ),
    Use.SETTINGS: (
        "kubectl create role gpu-scheduler-settings -n system --verb=list,watch --resource=configmaps "
        "--resource-name=gpu-scheduler-settings && "
        "kubectl create rolebinding gpu-scheduler-settings -n system --role=gpu-scheduler-settings --user='jane doe'"
    ),
    Use.EVENTS: (
        "kubectl create clusterrole gpu-scheduler-events --verb=create --resource=events.events.k8s.io && "
        "kubectl create clusterrolebinding gpu-scheduler-events --clusterrole=gpu-scheduler-events --user='jane doe'"
    ),
}


@pytest.mark.parametrize(("use", "commands"), GRANTS.items())
def test_the_commands_grant_the_right(use: Use, commands: str) -> None:
    """Cluster-wide or in one namespace; the account's name is quoted for the shell."""
    rights = {right.use: right for right in needed_rights(SETTINGS, leader_elect=True)}

    assert rights[use].grant("jane doe") == commands


@pytest.mark.parametrize("account", [response({}, 403), response({"status": 1}), response({"status": {}})])
async def test_an_account_without_a_name_is_a_user(account: ApiResponse, caplog: pytest.LogCaptureFixture) -> None:
    """A server that does not name the account leaves a place for the name."""
    await find(Reviewer(("watch", "nodes", ""), account=account))

    assert vars(caplog.records[-1])["grant"].endswith("--user=USER")


ESSENTIAL: Final[dict[str, tuple[tuple[Asked, ...], str]]] = {
    "several": (
        (("watch", "pods", ""), ("create", "pods/binding", ""), ("list", "nodes", "")),
        (
            f'cannot schedule as "{ACCOUNT}": it may not watch pods; create pods/binding; list nodes; '
            "grant each right (example: kubectl create clusterrole gpu-scheduler-pods --verb=watch --resource=pods && "
            f"kubectl create clusterrolebinding gpu-scheduler-pods --clusterrole=gpu-scheduler-pods --user={ACCOUNT})"
        ),
    ),
    "the Lease": (
        (("update", "leases.coordination.k8s.io", "gpu-scheduler"), ("create", "leases.coordination.k8s.io", "")),
        (
            f'cannot schedule as "{ACCOUNT}": it may not update leases.coordination.k8s.io "gpu-scheduler" in '
            "namespace system; create leases.coordination.k8s.io in namespace system, and without a Lease two replicas "
            "could give one GPU twice; grant each right, or add --leader-elect=false if no other scheduler of "
            '"gpu-scheduler" runs '
            "(example: gpu-scheduler run --kubeconfig FILE --leader-elect=false)"
        ),
    ),
}


@pytest.mark.promise("lead-8")
@pytest.mark.parametrize(("rights", "sentence"), ESSENTIAL.values(), ids=ESSENTIAL)
async def test_without_an_essential_right_it_does_not_start(rights: tuple[Asked, ...], sentence: str) -> None:
    """One sentence names all of them, the rule, and an example."""
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
        await find(Reviewer(*rights))


async def test_a_missing_right_to_place_pods_is_not_cured_by_an_option() -> None:
    """If the right to a Lease is missing too, the example grants the first right."""
    with pytest.raises(UsageError, match=r"--leader-elect=false .* \(example: kubectl create clusterrole"):
        await find(Reviewer(("list", "nodes", ""), ("create", "leases.coordination.k8s.io", "")))


REFUSALS: Final[dict[str, Any]] = {
    "refused": (response({"message": "no reviews here"}, 403), "HTTP 403: no reviews here"),
    "something else": (response("<html>"), "the answer is no SelfSubjectAccessReview"),
}


@pytest.mark.parametrize(("refused", "why"), REFUSALS.values(), ids=REFUSALS)
async def test_an_answer_that_is_none_denies_nothing(
    refused: ApiResponse, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The scheduler runs as if it had all rights, and says so once."""
    assert await find(Reviewer(("watch", "nodes", ""), refused=refused)) == {}

    assert warnings(caplog) == ["Cannot ask for all rights: going on as if the rest were there"]
    assert vars(caplog.records[0])["error"] == why


async def test_an_api_server_without_an_answer_delays_the_start_only_shortly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a cut connection nor one that stays silent says that a right is missing."""
    monkeypatch.setattr(access, "ASK_TIMEOUT", 0.01)

    class Silent:
        async def call(self, *_: object, **__: object) -> ApiResponse:
            await asyncio.sleep(60)
            raise AssertionError

    class Cut:
        async def call(self, *_: object, **__: object) -> ApiResponse:
            raise NoResponseError("connection refused")

    assert [await find(server()) for server in (Silent, Cut)] == [{}, {}]
    assert [vars(record)["error"] for record in caplog.records] == ["no answer in 0.01 s", "connection refused"]


def test_a_right_is_retried_only_where_its_grant_is_followed() -> None:
    """Without an election the limits are left out: the operator runs the scheduler outside an installation."""

    def retried(*, leader_elect: bool, isolation: Literal["env", "dra"] = "env") -> set[Use]:
        rights = needed_rights(replace(SETTINGS, isolation=isolation), leader_elect=leader_elect)
        return {right.use for right in rights if right.missing is Missing.RETRY}

    assert retried(leader_elect=True) == {Use.LIMITS, Use.MONITORS}
    assert retried(leader_elect=False) == {Use.MONITORS}
    # A pod whose claims cannot be written is tried again.
    claims = {
        Use.DEVICE_SLICES,
        Use.DEVICE_CLASSES,
        Use.DEVICE_CLAIMS,
        Use.CLAIM_WRITES,
        Use.CLAIM_STATUSES,
        Use.CLAIM_ALLOCATIONS,
    }
    assert retried(leader_elect=False, isolation="dra") == {Use.MONITORS, *claims}


@pytest.mark.parametrize("kinds", [True, False])
async def test_a_right_on_a_kind_that_is_not_installed_is_not_asked_of_anybody(
    kinds: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is left out all the same: kubectl could not grant it, and there is nothing to read."""
    denied = await find(Reviewer(("list", "gpunodes.agentaflow.io", ""), kinds=kinds))

    assert set(denied) == {Use.CORDONS}
    assert len(warnings(caplog)) == int(kinds)
