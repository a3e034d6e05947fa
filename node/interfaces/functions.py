"""Settings of a virtual function at its physical one (IFLA_VF_* of linux/if_link.h): read and set.

They stay when the function's interface moves, since the physical one holds them; so they are put back afterwards.
"""

from __future__ import annotations

import struct

from node.interfaces.links import EXT_MASK, GETLINK, LINK, NEWLINK, NUMBER
from node.interfaces.model import VfSettings
from node.netlink import Netlink, attribute, attribute_list, attributes

_WITH_FUNCTIONS = 1
_VFINFO_LIST, _VF_INFO = 22, 1
_VF_MAC, _VF_VLAN, _VF_SPOOF_CHECK, _VF_TRUST = 1, 2, 4, 9
_MAC = struct.Struct("=I32s")
_VLAN = struct.Struct("=III")
_SWITCH = struct.Struct("=II")
_MAC_BYTES = 6
_UNKNOWN = 0xFFFFFFFF
"""The kernel's value of a setting that the driver does not know."""


def function_state(netlink: Netlink, physical: int, number: int) -> VfSettings | None:
    """What the virtual function has at the link of its physical one; None if it is not there.

    A setting that the driver does not know is None.

    Raises NetlinkError.
    """
    request = LINK.pack(0, 0, physical, 0, 0) + attribute(EXT_MASK, NUMBER.pack(_WITH_FUNCTIONS))
    for payload in netlink.request(GETLINK, request, f"virtual functions of link {physical}"):
        functions = attributes(payload, LINK.size, "a link").get(_VFINFO_LIST, b"")
        for kind, raw in attribute_list(functions, 0, "virtual functions"):
            found = attributes(raw, 0, "a virtual function") if kind == _VF_INFO else {}
            if _VF_MAC in found and _MAC.unpack_from(found[_VF_MAC])[0] == number:
                return _state(found)
    return None


def _state(found: dict[int, bytes]) -> VfSettings:
    vlan = _VLAN.unpack_from(found[_VF_VLAN]) if _VF_VLAN in found else None
    return VfSettings(
        hardware_address=_MAC.unpack_from(found[_VF_MAC])[1][:_MAC_BYTES].hex(":"),
        vlan=vlan[1] if vlan is not None else None,
        vlan_qos=vlan[2] if vlan is not None else None,
        trust=_switch(found.get(_VF_TRUST)),
        spoof_check=_switch(found.get(_VF_SPOOF_CHECK)),
    )


def _switch(raw: bytes | None) -> bool | None:
    setting = _SWITCH.unpack_from(raw)[1] if raw else _UNKNOWN
    return None if setting == _UNKNOWN else bool(setting)


def changed_by(wanted: VfSettings, state: VfSettings) -> VfSettings:
    """Of the function's present settings, those that ``wanted`` changes: what restores it afterwards."""
    vlan = wanted.vlan is not None or wanted.vlan_qos is not None
    return VfSettings(
        hardware_address=state.hardware_address if wanted.hardware_address else "",
        vlan=state.vlan if vlan else None,
        vlan_qos=state.vlan_qos if vlan else None,
        trust=state.trust if wanted.trust is not None else None,
        spoof_check=state.spoof_check if wanted.spoof_check is not None else None,
    )


def set_function(netlink: Netlink, physical: int, number: int, wanted: VfSettings, state: VfSettings) -> bool:
    """Set what differs from ``state``, by one message; whether anything did. Raises NetlinkError."""
    content = b""
    if wanted.hardware_address and wanted.hardware_address != state.hardware_address:
        content += attribute(_VF_MAC, _MAC.pack(number, bytes.fromhex(wanted.hardware_address.replace(":", ""))))
    vlan = (state.vlan or 0) if wanted.vlan is None else wanted.vlan
    qos = (state.vlan_qos or 0) if wanted.vlan_qos is None else wanted.vlan_qos
    if (vlan, qos) != (state.vlan or 0, state.vlan_qos or 0):
        content += attribute(_VF_VLAN, _VLAN.pack(number, vlan, qos))
    if wanted.spoof_check is not None and wanted.spoof_check is not state.spoof_check:
        content += attribute(_VF_SPOOF_CHECK, _SWITCH.pack(number, wanted.spoof_check))
    if wanted.trust is not None and wanted.trust is not state.trust:
        content += attribute(_VF_TRUST, _SWITCH.pack(number, wanted.trust))
    if not content:
        return False
    body = LINK.pack(0, 0, physical, 0, 0) + attribute(_VFINFO_LIST, attribute(_VF_INFO, content))
    netlink.request(NEWLINK, body, f"virtual function {number} of link {physical}")
    return True
