"""Manifests that the sandbox makes up: DeviceClasses as the chart makes them, a pod, a template for its claim. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

ENTRY = "devices"
"""The name of the claim in its pod."""
DRIVER = "ostler.dev"


def template(name: str, count: int = 1, *, match: str = "", kind: str = "gpu", choosing: str = "") -> Json:
    """A ResourceClaimTemplate for ``count`` devices of a kind.

    ``match``: attribute that they have to agree in; ``choosing``: a CEL expression that each has to fulfil.
    """
    exactly: Json = {"deviceClassName": f"{kind}.{DRIVER}", "count": count}
    if choosing:
        exactly["selectors"] = [{"cel": {"expression": choosing}}]
    request = {"name": kind, "exactly": exactly}
    devices: Json = {"requests": [request]}
    if match:
        qualified = match if "/" in match else f"{DRIVER}/{match}"
        devices["constraints"] = [{"requests": [kind], "matchAttribute": qualified}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }


def pair(name: str, first: str, second: str, match: str) -> Json:
    """A ResourceClaimTemplate for two devices, of the kinds ``first`` and ``second``, that agree in ``match``."""
    made = template(name, kind=first)
    devices = made["spec"]["spec"]["devices"]
    devices["requests"].append({"name": second, "exactly": {"deviceClassName": f"{second}.{DRIVER}"}})
    devices["constraints"] = [{"requests": [first, second], "matchAttribute": f"{DRIVER}/{match}"}]
    return made


def with_parameters(made: Json, parameters: Json) -> Json:
    """The ResourceClaimTemplate with parameters of ours for all its requests."""
    opaque = {"driver": DRIVER, "parameters": {"apiVersion": f"{DRIVER}/v1alpha1", **parameters}}
    made["spec"]["spec"]["devices"]["config"] = [{"opaque": opaque}]
    return made


def pod(name: str, template_name: str, limits: Mapping[str, int] | None = None) -> Json:
    """A pod whose container ``main`` has a claim from the template; ``limits``: of a second one, ``plugin``.

    Two containers, because both doors set variables of the NVIDIA runtime, of which a container has one each.
    """
    containers = [_container("main", {"claims": [{"name": ENTRY}]})]
    if limits:
        containers.append(_container("plugin", {"limits": dict(limits)}))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": containers,
            "resourceClaims": [{"name": ENTRY, "resourceClaimTemplateName": template_name}],
        },
    }


def _container(name: str, resources: Json) -> Json:
    return {"name": name, "image": "registry.k8s.io/pause:3.10", "resources": resources}


def device_classes() -> list[dict[str, Any]]:
    """One class for each sort of device."""
    own = f"device.attributes['{DRIVER}']"
    asked = {name: f"{own}.type == '{name}'" for name in ("gpu", "mig", "partition")}
    asked["nic"] = f"{own}.type in ['nic', 'rdma']"
    asked["rdma"] = f"({own}.type == 'rdma' || {own}.?rdma.orValue(false))"
    return [_device_class(name, expression) for name, expression in asked.items()]


def _device_class(name: str, expression: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"{name}.{DRIVER}"},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}' && {expression}"}}]},
    }
