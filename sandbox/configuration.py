"""What the sandbox has the agent offer when nobody says otherwise: every GPU under its vendor's name, and NICs too.

On a recorded node some of them are offered through DRA instead (``sandbox.claimed``). They are named by PCI addresses,
which never change, so that no device can move from one door to the other.

NICs are offered only where a configuration names them, since a node's network is its administrator's to give away; a
node in a box has none to lose. Devices that serve the node itself stay out of it all the same.
"""

from __future__ import annotations

import json
from pathlib import Path

from sandbox.claimed import Division, Shares

Rule = dict[str, object]

RDMA = "ostler.dev/rdma"
"""InfiniBand and other adapters for RDMA alone."""
ROCE = "ostler.dev/roce"
"""Ethernet NICs with an RDMA device."""
NIC = "ostler.dev/nic"
"""All other NICs."""
NIC_RESOURCES = (RDMA, ROCE, NIC)
"""Best for a GPU first."""
CLAIMED = "-by-claim"
"""The end of the names of what is offered through DRA."""

_NVIDIA: Rule = {"kind": "gpu", "vendor": "nvidia"}
_AMD: Rule = {"kind": ["gpu", "partition"], "vendor": "amd"}


def configuration(*, mig: bool, topology: Path | None = None, shares: Shares = Shares()) -> str:  # noqa: B008 - frozen
    """The text of a configuration file; ``mig``: MIG devices by profile (else their GPUs), ``topology``: overrides.

    ``shares``: which devices are for claims.
    """
    document: dict[str, object] = {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Config",
        "resources": [*_claimed(shares), *_gpus(shares, mig=mig), *_nics(shares)],
    }
    if topology is not None:
        document["topology"] = {"file": str(topology.resolve())}
    # JSON is YAML, and is written without a parser's help.
    return json.dumps(document, indent=2) + "\n"


def _claimed(shares: Shares) -> list[Rule]:
    """Rules of the second door: before the others, because the first that selects a device has it."""
    nics: Rule = {"functions": ["pf"], "pciAddress": list(shares.nics.claimed)}
    functions: Rule = {"functions": ["vf"], "rootDevices": list(shares.cards.claimed)}
    found = [
        (shares.nvidia, _rule(f"nvidia.com/gpu{CLAIMED}", {**_NVIDIA, "pciAddress": list(shares.nvidia.claimed)})),
        (shares.amd, _rule(f"amd.com/gpu{CLAIMED}", {**_AMD, "pciAddress": list(shares.amd.claimed)})),
    ]
    for division, selected in ((shares.nics, nics), (shares.cards, functions)):
        for name, kind in ((RDMA, "rdma"), (NIC, "nic")):
            found.append((division, {**_rule(f"{name}{CLAIMED}", {"kind": kind, **selected}), "linkHealth": True}))
    return [{**rule, "door": "dra"} for division, rule in found if division.claimed]


def _gpus(shares: Shares, *, mig: bool) -> list[Rule]:
    apart = _others(shares.nvidia)
    rules = [_rule("nvidia.com/gpu", {**_NVIDIA, **apart, **({"migEnabled": False} if mig else {})})]
    if mig:
        rules.append(_rule("nvidia.com/mig-{profile}", {**_NVIDIA, "kind": "mig", "wholeInstances": True, **apart}))
    return [
        *rules,
        _rule("amd.com/gpu", {**_AMD, **_others(shares.amd)}),
        _rule("gpu.intel.com/i915", {"kind": "gpu", "vendor": "intel", "drivers": ["i915"]}),
        _rule("gpu.intel.com/xe", {"kind": "gpu", "vendor": "intel", "drivers": ["xe"]}),
    ]


def _nics(shares: Shares) -> list[Rule]:
    apart: Rule = {"functions": ["pf"]} if shares.nics.claimed else {}
    if shares.cards.claimed:
        apart = {"rootDevices": list(shares.cards.others)}
    kinds: tuple[tuple[str, Rule], ...] = (
        (RDMA, {"kind": "rdma"}),
        (ROCE, {"kind": "nic", "rdma": True}),
        (NIC, {"kind": "nic"}),
    )
    return [{**_rule(name, {**selected, **apart}), "linkHealth": True} for name, selected in kinds]


def _others(division: Division) -> Rule:
    return {"pciAddress": list(division.others)} if division.claimed else {}


def _rule(name: str, devices: Rule) -> Rule:
    return {"name": name, "devices": devices}
