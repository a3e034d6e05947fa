"""The sandbox's default configuration of the agent: it offers every GPU under its vendor's name, and NICs too.

A recorded node's devices are offered at both doors, so that pods and claims can be tried beside each other. NICs are
offered only where a configuration names them, since a node's network is its administrator's to give away; a node in a
box has none to lose. Devices that the node itself uses stay out of it anyway.
"""

from __future__ import annotations

import json
from pathlib import Path

from node.inventory.model import DeviceKind
from node.inventory.vendors import VENDORS

Rule = dict[str, object]

RDMA = "ostler.dev/rdma"
"""InfiniBand and other adapters for RDMA alone."""
ROCE = "ostler.dev/roce"
"""Ethernet NICs with an RDMA device."""
NIC = "ostler.dev/nic"
"""All other NICs."""
NIC_RESOURCES = (RDMA, ROCE, NIC)
"""Best for a GPU first."""


def configuration(*, mig: bool, topology: Path | None = None, both: bool = False) -> str:
    """The text of a configuration file; ``mig``: MIG devices by profile (else their GPUs), ``topology``: overrides.

    ``both``: at both doors, else at the plugin door alone.
    """
    rules = [*_gpus(mig=mig), *_nics()]
    document: dict[str, object] = {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Config",
        "resources": [{**rule, "door": "both"} for rule in rules] if both else rules,
    }
    if topology is not None:
        document["topology"] = {"file": str(topology.resolve())}
    # JSON is YAML, and is written without a parser's help.
    return json.dumps(document, indent=2) + "\n"


def _gpus(*, mig: bool) -> list[Rule]:
    rules = []
    for vendor in VENDORS:
        for resource in vendor.resources:
            kinds = resource.kinds
            selected: Rule = {"kind": list(kinds) if len(kinds) > 1 else kinds[0], "vendor": vendor.name}
            if resource.drivers:
                selected["drivers"] = list(resource.drivers)
            if DeviceKind.MIG in kinds:
                selected["wholeInstances"] = True
            elif mig and DeviceKind.MIG in vendor.kinds:
                selected["migEnabled"] = False
            if mig or DeviceKind.MIG not in kinds:
                rules.append(_rule(resource.name, selected))
    return rules


def _nics() -> list[Rule]:
    kinds: tuple[tuple[str, Rule], ...] = (
        (RDMA, {"kind": "rdma"}),
        (ROCE, {"kind": "nic", "rdma": True}),
        (NIC, {"kind": "nic"}),
    )
    return [{**_rule(name, selected), "linkHealth": True} for name, selected in kinds]


def _rule(name: str, devices: Rule) -> Rule:
    return {"name": name, "devices": devices}


def with_shares(configuration: str, device: str, resource: str, replicas: int) -> str:
    """The configuration with one device shared at both doors as ``resource``."""
    sharing: Rule = {"strategy": "timeSlicing", "replicas": replicas}
    return _with_rule(configuration, {**_rule(resource, {"name": device}), "door": "both", "sharing": sharing})


def with_partitions(configuration: str, device: str, resource: str) -> str:
    """The configuration with one GPU whose partitions are made for claims."""
    gpu: Rule = {"kind": "gpu", "vendor": "nvidia", "name": device}
    rule = {**_rule(resource, gpu), "door": "dra", "partitions": "onDemand"}
    return _with_rule(configuration, rule)


def with_moved_interface(configuration: str, device: str, resource: str) -> str:
    """The configuration with one NIC whose interface moves into the pod of its claim."""
    return _with_rule(configuration, {**_rule(resource, {"name": device}), "door": "dra", "moveInterface": True})


def with_runtime(configuration: str, socket: Path) -> str:
    """The configuration for a node whose container runtime serves NRI at that socket."""
    document = json.loads(configuration)
    return json.dumps({**document, "dra": {"nriSocket": str(socket)}}, indent=2) + "\n"


def _with_rule(configuration: str, rule: Rule) -> str:
    document = json.loads(configuration)
    return json.dumps({**document, "resources": [rule, *document["resources"]]}, indent=2) + "\n"
