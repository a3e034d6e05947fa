"""What the agents' account may do at the API server, as a table: this and nothing else."""

from __future__ import annotations

Right = tuple[str, str, str, str]
"""Namespace (empty: everywhere), API group with resource, name (empty: any), verb."""

ALWAYS: set[Right] = {("", "nodes", "", "get")}
EVENTS: set[Right] = {("default", "events", "", verb) for verb in ("create", "patch")}
"""On top of them with ``events.enabled``, as by default."""
DRA: set[Right] = {
    *(("", "pods", "", verb) for verb in ("list", "watch")),
    *(
        ("", "resource.k8s.io/resourceslices", "", verb)
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete")
    ),
    *(("", "resource.k8s.io/resourceclaims", "", verb) for verb in ("get", "list")),
    *(("", "resource.k8s.io/resourceclaims/status", "", verb) for verb in ("update", "patch")),
    *(
        ("", "resource.k8s.io/resourceclaims/driver", "ostler.dev", f"associated-node:{verb}")
        for verb in ("update", "patch")
    ),
}
"""On top of them with ``dra.enabled``."""
NODE_STATUS: set[Right] = {("", "nodes/status", "", "patch")}
"""On top of them with ``patchAllocatable.enabled``."""
BY_NAME: set[Right] = {("", "pods", "", "delete"), ("", "pods/status", "", "patch")}
"""On top of these with ``dra.evictByName``."""
BY_NODE: set[Right] = {("", "nodes", "", verb) for verb in ("list", "watch")}
"""On top of these with ``dra.doorByNode``."""
RECORDED: set[Right] = {*(("", "pods", "", verb) for verb in ("list", "watch")), ("", "pods/status", "", "patch")}
"""On top of them with ``recordedDevices.enabled``."""
