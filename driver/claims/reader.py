"""Where preparation gets a claim from: the API server, behind a protocol of one question."""

from __future__ import annotations

from typing import Protocol

from kube.bodies import JsonObject


class ClaimReader(Protocol):
    """Reads claims one by one: node identities may not list them."""

    async def claim(self, namespace: str, name: str) -> JsonObject | None:
        """The claim as resource.k8s.io/v1, None when there is none of that name.

        Raises ``driver.claims.errors.Unavailable`` when the API server gives no answer in time or refuses us; its text
        says which and what to do.
        """
        ...
