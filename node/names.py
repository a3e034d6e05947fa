"""Extended resource names: which names a kubelet takes from a device plugin.

A name that the kubelet refuses shows only as a failed registration on the node, long after the configuration was
written; so the same rule is asked when a configuration is read, and by the stand-in for the kubelet. Pure.
"""

from __future__ import annotations

import re

MAX_DOMAIN = 244
"""Characters of a resource's domain: 253 of a DNS subdomain less the ``requests.`` that quotas put in front."""

MAX_NAME = 63
"""Characters of the part behind the slash."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
# The length of a single label is not checked by the kubelet either.
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"


def is_extended_resource_name(name: str) -> bool:
    """Whether a kubelet accepts ``name`` as the resource of a device plugin (kubelet 1.36 behaviour)."""
    return explain_resource_name(name) is None


def explain_resource_name(name: str) -> str | None:
    """Why a kubelet refuses ``name`` as the resource of a device plugin, as a sentence with the fix; None if it does
    not refuse it.
    """
    reason = _reason(name)
    return None if reason is None else f"resource name {name!r} {reason}"


def _reason(name: str) -> str | None:
    domain, slash, rest = name.partition("/")
    if not slash:
        return "has no domain; write it as domain/name, for example example.com/gpu"
    if "kubernetes.io/" in name:
        return "contains 'kubernetes.io/', which is kept for Kubernetes itself; use a domain of your own"
    if name.startswith("requests."):
        return "starts with 'requests.', which is kept for quotas; use a domain of your own"
    if "/" in rest:
        return "has more than one '/'; write it as domain/name"
    if len(domain) > MAX_DOMAIN:
        return f"has a domain of {len(domain)} characters; {MAX_DOMAIN} are allowed"
    if not re.fullmatch(_DOMAIN, domain):
        return (
            f"has the domain {domain!r}, which is no DNS name; use lower-case letters, digits, '-' and '.', "
            "each part starting and ending with a letter or digit"
        )
    if len(rest) > MAX_NAME:
        return f"has {len(rest)} characters behind the '/'; {MAX_NAME} are allowed"
    if not re.fullmatch(_NAME, rest):
        return (
            f"has {rest!r} behind the '/'; use letters, digits, '-', '_' and '.', "
            "starting and ending with a letter or digit"
        )
    return None
