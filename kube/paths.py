"""Paths of the API: apart from the client, so that naming an object loads no transport."""

from __future__ import annotations

from urllib.parse import quote


def path_of(*parts: str) -> str:
    """A path of the API with its parts escaped: ``path_of("api", "v1", "nodes", name)``."""
    return "/" + "/".join(quote(part, safe="") for part in parts)
