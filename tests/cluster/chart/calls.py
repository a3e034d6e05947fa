"""Requests to the API server, each with who is expected to refuse it, and those that are answered otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from deploy.generate import NAMESPACE
from tests.cluster.rig.api import MERGE, ApiRefused, Object, RigApi
from tests.cluster.rig.processes import ProcessNotReady, wait_until
from tests.deploy.chart.rights import Right

ALLOWED = "allowed"
BY_ROLE = "by the role"
BY_POLICY = "by the policy"
BY_SERVER = "by the server"
BY_EITHER = f"{BY_POLICY} or {BY_SERVER}"
"""By the server where it asks for rights of its own (Kubernetes 1.36), else by the policy."""

IN_FORCE = 60.0
"""Seconds after which every policy that was made is in force, on a machine that has much else to do."""


@dataclass(frozen=True, slots=True)
class AccountCall:
    """A request and who refuses it, if anybody: written requests are dry runs, so that nothing is left of them."""

    method: str
    path: str
    answer: str
    body: Object | None = field(default=None, hash=False)
    about: str = ""
    patch: str = MERGE

    def __str__(self) -> str:
        return " ".join(word for word in (self.method, self.path, self.about) if word)

    def right(self, outcome: str) -> bool:
        """Whether that is what the table says."""
        return outcome in self.answer.split(" or ")

    def outcome(self, api: RigApi) -> str:
        """What the API server says."""
        write = self.method != "GET"
        kind = self.patch if self.method == "PATCH" else "application/json"
        path = self.path + ("?dryRun=All" if write and "?" not in self.path else "")
        try:
            api.request(self.method, path, self.body, kind)
        except ApiRefused as refused:
            if refused.status == 404:
                # Whoever may not ask is not told whether it is there.
                return ALLOWED
            if "ValidatingAdmissionPolicy" in str(refused):
                return BY_POLICY
            return {403: BY_ROLE, 422: BY_SERVER}.get(refused.status, str(refused))
        return ALLOWED


def wrong(api: RigApi, calls: Sequence[AccountCall]) -> dict[str, str]:
    """Calls whose outcome is another than the table has it, with that outcome.

    The API server takes up policies one by one: those with a wrong outcome are made again until all are in force.
    """
    found = outcomes(api, calls)

    def none_is_wrong() -> bool:
        again = outcomes(api, [call for call in calls if line_of(call) in found])
        found.clear()
        found.update(again)
        return not found

    with contextlib.suppress(ProcessNotReady):
        wait_until("the policies are in force", none_is_wrong, IN_FORCE)
    return found


def outcomes(api: RigApi, calls: Sequence[AccountCall]) -> dict[str, str]:
    """Calls whose outcome is another than the table has it now, with that outcome."""
    # Every call takes milliseconds, and all are in one failure's message: one test for the table says more.
    every = ((call, call.outcome(api)) for call in calls)
    return {line_of(call): outcome for call, outcome in every if not call.right(outcome)}


def line_of(call: AccountCall) -> str:
    """A call and what the table says of it."""
    return f"{call}: {call.answer}"


def refused(*calls: tuple[str, str]) -> list[AccountCall]:
    """Calls that no role allows."""
    return [
        AccountCall(method, path, BY_ROLE, {} if method in {"POST", "PUT", "PATCH"} else None) for method, path in calls
    ]


def rights_of(api: RigApi) -> set[Right]:
    """The rights that the API server says whoever asks has."""
    found: set[Right] = set()
    per_namespace = {name: _rules(api, name) for name in ("default", NAMESPACE, "kube-system")}
    everywhere = set.intersection(*per_namespace.values())
    found |= {("", *rule) for rule in everywhere}
    for namespace, rules in per_namespace.items():
        found |= {(namespace, *rule) for rule in rules - everywhere}
    return found


def _rules(api: RigApi, namespace: str) -> set[tuple[str, str, str]]:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = api.create("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)["status"]
    return {
        (f"{group}/{resource}".lstrip("/"), name, verb)
        for rule in status["resourceRules"]
        for group in rule.get("apiGroups", [])
        for resource in rule.get("resources", [])
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
    }
