"""JSON Schema of the chart's values: strict about every key, with ostler's own schema for ``config``.

Draft 7, because Helm before 3.18 knows nothing newer; ostler's schema uses no keyword that came later. Helm compiles
patterns with Go's regular expressions, which have no lookaround: such a pattern is left out, and the agent, which
checks everything anyway, is then the first to refuse what it forbids.

Every value is required but maps and lists that may be empty: a value that is not there (``--set image=null``, or
``helm upgrade --reuse-values`` to a chart that has new values) is named here, and not by a template that stumbles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from driver.names import MetadataVersion, Peer, TaintEffect
from driver.parameters.decoding import CLASS_ONLY, FIELDS
from driver.parameters.interface import FIELDS as INTERFACE_FIELDS
from node.inventory.vendors import VENDORS
from ostler.config.scalars import Json, JsonObject
from ostler.config.schema import json_schema

_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_LABEL_KEY = rf"({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_QUANTITY = r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?"
_RESOURCE = rf"{_SUBDOMAIN}/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_RESOURCES = rf"({_RESOURCE}|{_SUBDOMAIN}/([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?\*)"
"""A resource, or with ``*`` all whose names begin so."""
_REPOSITORY = r"(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/)?[a-z0-9]+(([._/]|__|-+)[a-z0-9]+)*"
_OCTET = r"(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_ADDRESS = rf"({_OCTET}(\.{_OCTET}){{3}}|\[[0-9A-Fa-f:.]+\]|\[?\$\(POD_IP\)\]?)?"
_FOLDER = r"(/(\.?[^/.\s][^/\s]*|\.\.[^/\s]+))+/?"
"""A folder of the node that is not its root, without ``.`` and ``..``, which the API server refuses."""
_MAY_BE_EMPTY = frozenset(
    {
        "global",
        "imagePullSecrets",
        "nodeSelector",
        "nodeFeatureDiscovery",
        "affinity",
        "tolerations",
        "resources",
        "seLinuxOptions",
        "commonLabels",
        "podLabels",
        "podAnnotations",
        "annotations",
        "from",
        "labels",
        "alsoPublishAs",
        "deviceMetadata",
        "extendedResources",
        "classOnly",
        "clientNames",
    }
)
"""Values for which null says the same as an empty one."""

CHARTS_OWN = (
    ("nodeName",),
    ("instance",),
    ("socket",),
    ("roots",),
    ("state",),
    ("http",),
    ("topology",),
    ("kubernetes",),
    ("dra",),
    ("kubelet", "devicePluginDir"),
    ("kubelet", "pluginsRegistryDir"),
    ("cdi",),
    ("nvidia", "driverRoot"),
    ("nvidia", "driverRootMount"),
    ("nvidia", "devRoot"),
    ("nvidia", "devRootMount"),
    ("nvidia", "library"),
    ("nvidia", "migConfigFile"),
)
"""Keys of the configuration that the chart decides. Its templates say what to set instead; the schema lets them by."""


def values_schema() -> JsonObject:
    """The schema that is committed as the chart's ``values.schema.json``."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart of ostler",
        **_section(
            {
                **_image(),
                "config": _config(),
                "configText": {"type": "string"},
                "topology": {"type": "string"},
                "recording": {"type": "string"},
                **_hardware(),
                **_pods(),
                **_api_server(),
                "extender": _extender(),
                **_monitoring(),
                # Helm gives this to a chart that is part of another one.
                "global": {"type": "object"},
            }
        ),
    }


def _image() -> dict[str, JsonObject]:
    image: dict[str, JsonObject] = {
        "repository": _text(_REPOSITORY),
        "tag": _text(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"),
        "digest": _text(r"(sha256:[0-9a-f]{64})?"),
        "pullPolicy": {"enum": ["IfNotPresent", "Always", "Never"]},
    }
    return {"image": _section(image), "imagePullSecrets": {"type": "array", "items": _text(_SUBDOMAIN)}}


def _config() -> JsonObject:
    schema = _without_lookaround({key: value for key, value in json_schema().items() if key not in ("$schema", "$id")})
    for path in CHARTS_OWN:
        section = schema
        for name in path[:-1]:
            section = _inner(section, "properties", name)
        _inner(section, "properties")[path[-1]] = {"description": "Set by the chart, and refused by its templates."}
    return schema


def _inner(schema: JsonObject, *names: str) -> JsonObject:
    for name in names:
        found = schema[name]
        assert isinstance(found, dict)
        schema = found
    return schema


def _hardware() -> dict[str, JsonObject]:
    nvidia: dict[str, JsonObject] = {
        "access": {"enum": ["runtime", "privileged", "none"]},
        "visibleDevices": _text(r"\S+"),
        "mig": _boolean(),
        "migLayouts": {"type": "string"},
        "mps": _boolean(),
    }
    folders = ("kubeletRoot", "devicePluginDir", "cdiRoot", "stateDir")
    return {
        "runtimeClassName": _text(rf"({_SUBDOMAIN})?"),
        "nvidia": _section(nvidia),
        "nics": _section(
            {"enabled": _boolean(), "udev": _boolean(), "virtualFunctions": _boolean(), "moveInterfaces": _boolean()}
        ),
        "cdiAccess": {"enum": ["auto", "always"]},
        **{name: _text(_FOLDER) for name in folders},
        "driverRoot": _text(rf"(/|{_FOLDER})"),
        "devRoot": _text(rf"(/|{_FOLDER})?"),
        "machineIdFile": _text(rf"({_FOLDER})?"),
    }


def _extender() -> JsonObject:
    names: JsonObject = {
        "type": "object",
        "propertyNames": _text(_SUBDOMAIN),
        "additionalProperties": {"type": "array", "items": {"type": "string"}},
    }
    return _section(
        {
            "enabled": _boolean(),
            # The extender itself checks it, before it serves and at each change.
            "config": {"type": "object"},
            "namespaces": _section({"virtualClusters": names, "annotation": _text(rf"({_LABEL_KEY})?")}),
            "kueue": _section({"enabled": _boolean()}),
            "tlsSecret": _text(rf"({_SUBDOMAIN})?"),
            "clientNames": {"type": "array", "items": _text(r"\S+"), "uniqueItems": True},
            "replicas": {"type": "integer", "minimum": 1},
            "port": _port(),
            "clusterIP": _text(rf"({_OCTET}(\.{_OCTET}){{3}}|[0-9A-Fa-f:.]+)?"),
            "httpPort": _port(),
            "priorityClassName": _text(rf"({_SUBDOMAIN})?"),
            "nodeSelector": _labels(),
            "tolerations": _tolerations(),
            "resources": _resources(),
        }
    )


def _tolerations() -> JsonObject:
    toleration: dict[str, JsonObject] = {
        "key": {"type": "string"},
        "operator": {"enum": ["Exists", "Equal"]},
        "value": {"type": "string"},
        "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
        "tolerationSeconds": {"type": "integer"},
    }
    return {"type": "array", "items": _shape(toleration)}


def _resources() -> JsonObject:
    amount: JsonObject = {"anyOf": [{"type": "number", "minimum": 0}, _text(_QUANTITY)]}
    amounts: JsonObject = {"type": "object", "additionalProperties": amount}
    return _shape({"requests": amounts, "limits": amounts})


def _port() -> JsonObject:
    return {"type": "integer", "minimum": 1, "maximum": 65535}


def _pods() -> dict[str, JsonObject]:
    affinity: dict[str, JsonObject] = {
        name: {"type": "object"} for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")
    }
    peer: dict[str, JsonObject] = {name: {"type": "object"} for name in ("podSelector", "namespaceSelector", "ipBlock")}
    vendors: JsonObject = {"enum": [*(vendor.name for vendor in VENDORS), "mellanox"]}
    return {
        "fullnameOverride": _text(rf"({_LABEL})?"),
        "priorityClassName": _text(rf"({_SUBDOMAIN})?"),
        "nodeSelector": _labels(),
        "nodeFeatureDiscovery": {"type": "array", "items": vendors, "uniqueItems": True},
        "affinity": _shape(affinity),
        "tolerations": _tolerations(),
        "maxSurge": {"anyOf": [{"type": "integer", "minimum": 1}, _text(r"([1-9][0-9]?|100)%")]},
        "resources": _resources(),
        "hostPID": _boolean(),
        "seLinuxOptions": _shape({name: _text(r"\S+") for name in ("user", "role", "type", "level")}),
        "commonLabels": _labels(),
        "podLabels": _labels(),
        "podAnnotations": _texts(),
        "http": _section(
            {
                "port": _port(),
                "address": _text(_ADDRESS),
            }
        ),
        "networkPolicy": _section({"enabled": _boolean(), "from": {"type": "array", "items": _shape(peer)}}),
    }


def _api_server() -> dict[str, JsonObject]:
    account = {"create": _boolean(), "name": _text(rf"({_SUBDOMAIN})?"), "annotations": _texts()}
    return {
        "events": _section({"enabled": _boolean()}),
        "patchAllocatable": _section(
            {"enabled": _boolean(), "resources": {"type": "array", "items": _text(_RESOURCES), "uniqueItems": True}}
        ),
        "recordedDevices": _section({"enabled": _boolean()}),
        "dra": _section(_dra()),
        "serviceAccount": _section(account),
        "rbac": _section({"create": _boolean()}),
        "admissionPolicy": _section({"enabled": _boolean()}),
    }


def _dra() -> dict[str, JsonObject]:
    peers: JsonObject = {"enum": [peer.value for peer in Peer]}
    # A driver's name has at most 63 characters, and is the end of the classes' names.
    name: JsonObject = {**_text(_SUBDOMAIN), "maxLength": 63}
    return {
        "enabled": _boolean(),
        "doorByNode": _boolean(),
        "driverName": name,
        "alsoPublishAs": {"type": "array", "items": peers, "uniqueItems": True},
        "taintEffect": {"enum": [effect.value for effect in TaintEffect]},
        "deviceMetadata": {
            "type": "array",
            "items": {"enum": [version.value for version in MetadataVersion]},
            "uniqueItems": True,
        },
        "requireDeviceMetadata": _boolean(),
        "deviceClasses": _boolean(),
        "peerClasses": _boolean(),
        "extendedResources": {"type": "array", "items": _text(_RESOURCE), "uniqueItems": True},
        "claimParameters": _section({"checked": _boolean(), "classOnly": _class_only()}),
        "evictByName": _boolean(),
    }


def _class_only() -> JsonObject:
    """Fields of parameters that a claim may have and an administrator can forbid."""
    own = [name for name in FIELDS if name not in CLASS_ONLY]
    below = [f"interface.{name}" for name in INTERFACE_FIELDS]
    return {"type": "array", "items": {"enum": [*own, *below]}, "uniqueItems": True}


def _monitoring() -> dict[str, JsonObject]:
    monitor: dict[str, JsonObject] = {
        "enabled": _boolean(),
        "labels": _labels(),
        "interval": _text(r"([0-9]+(ms|s|m|h))+"),
    }
    return {
        "podMonitor": _section(monitor),
        "prometheusRule": _section({"enabled": _boolean(), "labels": _labels()}),
    }


def _section(properties: Mapping[str, JsonObject]) -> JsonObject:
    """Values of the chart's own: all are there, as values.yaml has them."""
    required: list[Json] = [name for name in properties if name not in _MAY_BE_EMPTY]
    return {**_shape(properties), "required": required}


def _shape(properties: Mapping[str, JsonObject]) -> JsonObject:
    """A part of Kubernetes' own, of which anything may be left out."""
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def _boolean() -> JsonObject:
    return {"type": "boolean"}


def _text(pattern: str) -> JsonObject:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _labels() -> JsonObject:
    keys: JsonObject = {"pattern": f"^{_LABEL_KEY}$"}
    return {"type": "object", "propertyNames": keys, "additionalProperties": _text(_LABEL_VALUE)}


def _texts() -> JsonObject:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _without_lookaround(schema: JsonObject) -> JsonObject:
    """A copy without the patterns that Go cannot compile."""
    return {key: _copied(value) for key, value in schema.items() if not _is_lookaround(key, value)}


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return _without_lookaround(value)
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _is_lookaround(key: str, value: Json) -> bool:
    return key == "pattern" and isinstance(value, str) and _LOOKAROUND.search(value) is not None
