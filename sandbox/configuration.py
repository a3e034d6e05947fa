"""What the sandbox has the agent offer when nobody says otherwise: every GPU under its vendor's name, and NICs too.

On a recorded node some GPUs are offered through DRA instead (``sandbox.claimed``). They are named by their PCI
addresses, which never change, so that no device can move from one door to the other.

NICs are offered only where a configuration names them, since a node's network is its administrator's to give away; a
node in a box has none to lose. Devices that serve the node itself stay out of it all the same.
"""

from __future__ import annotations

import json
from pathlib import Path

from sandbox.claimed import Shares

RDMA = "ostler.dev/rdma"
"""InfiniBand and other adapters for RDMA alone."""
ROCE = "ostler.dev/roce"
"""Ethernet NICs with an RDMA device."""
NIC = "ostler.dev/nic"
"""All other NICs."""
NIC_RESOURCES = (RDMA, ROCE, NIC)
"""Best for a GPU first."""
CLAIMED = "ostler.dev/gpu"
"""GPUs for claims."""


def configuration(*, mig: bool, topology: Path | None = None, shares: Shares = Shares()) -> str:  # noqa: B008 - frozen
    """The text of a configuration file; ``mig``: MIG devices by profile (else their GPUs), ``topology``: overrides.

    ``shares``: which GPUs are for claims.
    """
    gpus: dict[str, object] = {"kind": "gpu", "vendor": "nvidia"}
    resources: list[dict[str, object]] = []
    apart: dict[str, object] = {}
    if shares.claimed:
        claimed = {**gpus, "pciAddress": list(shares.claimed)}
        resources.append({**_resource(CLAIMED, claimed), "door": "dra"})
        apart = {"pciAddress": list(shares.others)}
    resources.append(_resource("nvidia.com/gpu", {**gpus, **apart, **({"migEnabled": False} if mig else {})}))
    if mig:
        instances = {"kind": "mig", "vendor": "nvidia", "wholeInstances": True, **apart}
        resources.append(_resource("nvidia.com/mig-{profile}", instances))
    resources += [
        _resource("amd.com/gpu", {"kind": ["gpu", "partition"], "vendor": "amd"}),
        _resource("gpu.intel.com/i915", {"kind": "gpu", "vendor": "intel", "drivers": ["i915"]}),
        _resource("gpu.intel.com/xe", {"kind": "gpu", "vendor": "intel", "drivers": ["xe"]}),
        {**_resource(RDMA, {"kind": "rdma"}), "linkHealth": True},
        {**_resource(ROCE, {"kind": "nic", "rdma": True}), "linkHealth": True},
        {**_resource(NIC, {"kind": "nic"}), "linkHealth": True},
    ]
    document: dict[str, object] = {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Config",
        "resources": resources,
    }
    if topology is not None:
        document["topology"] = {"file": str(topology.resolve())}
    # JSON is YAML, and is written without a parser's help.
    return json.dumps(document, indent=2) + "\n"


def _resource(name: str, devices: dict[str, object]) -> dict[str, object]:
    return {"name": name, "devices": devices}
