"""From opaque parameters to what each allocated device is given.

Pure, and all of it before anything is touched: a claim with one bad parameter changes nothing. Every configuration of
ours is decoded, also one that is for no device of this claim, so that a mistake shows at once and not with the next
allocation. Order of precedence, the last wins, field by field: the node's rule, then the configurations in the order of
the allocation, those of the class before those of the claim. Field by field means that a claim that asks for GDRCopy
keeps the IMEX channel that its class gives.

A configuration that names a request and does not fit its device is an error; one for all requests is for the devices
that it fits, since a claim may mix GPUs and NICs. A request with alternatives (``firstAvailable``) named as a whole is
taken the same way: which alternative was allocated is not the author's doing.

Parameters for a driver whose claims run on ours change nothing: what they ask for is refused unless every device has
it.
"""

from __future__ import annotations

from collections.abc import Iterable

from driver.claims.model import AllocatedConfig, AllocatedDevice, Allocation, ConfigSource
from driver.devices.offered import DoorView, DraDevice
from driver.parameters.decoding import decode
from driver.parameters.errors import ParameterError
from driver.parameters.fitness import check_fit
from driver.parameters.kinds import DEVICE_KINDS, Config, GpuConfig, NicConfig, kind_for
from driver.parameters.peers import check_served, concerns
from node.edits.options import EditOptions
from node.values import replace

DeviceKey = tuple[str, str, str]
"""``AllocatedDevice.key``: pool, device, share id."""


def device_options(allocation: Allocation, view: DoorView, driver: str) -> dict[DeviceKey, EditOptions]:
    """How each device of the claim is to be given, by ``AllocatedDevice.key``; ``driver``: our name.

    Devices that ``view`` lacks are left out: whoever prepares refuses them by name first. Raises ``ParameterError``
    for parameters that are wrong, or that ask for what the device or this node cannot give.
    """
    ours = [config for config in allocation.configs if config.peer is None]
    peers = [config for config in allocation.configs if config.peer is not None]
    decoded = [(config, decode(config)) for config in _in_order(ours)]
    options: dict[DeviceKey, EditOptions] = {}
    for allocated in allocation.devices:
        offered = view.device_for(allocated.device, looking=allocated.admin_access)
        if offered is not None:
            for config in peers:
                if concerns(config, allocated, offered):
                    check_served(config, driver)
            options[allocated.key] = _options_of(allocated, offered, decoded, view)
    return options


def _in_order(configs: Iterable[AllocatedConfig]) -> list[AllocatedConfig]:
    """Those of the class first, which the scheduler does, too; otherwise as they stand."""
    return sorted(configs, key=lambda config: config.source is not ConfigSource.CLASS)


def _options_of(
    allocated: AllocatedDevice, offered: DraDevice, decoded: list[tuple[AllocatedConfig, Config]], view: DoorView
) -> EditOptions:
    options = offered.rule.edits
    places: dict[str, str] = {}
    for config, content in decoded:
        named = _names(config, allocated)
        if named is None:
            continue
        if offered.device.kind not in DEVICE_KINDS[type(content)]:
            if named:
                raise _wrong_kind(config, content, allocated, offered)
            continue
        changed = _applied(options, content)
        for name in EditOptions.__slots__:
            if getattr(changed, name) != getattr(options, name):
                places[name] = config.place
        options = changed
    check_fit(offered.device, options, view.host, places)
    return options


def _names(config: AllocatedConfig, allocated: AllocatedDevice) -> bool | None:
    """Whether the configuration names this device's very request; None when it is not for it."""
    if not config.requests:
        return False
    if allocated.request in config.requests:
        return True
    return False if allocated.main_request in config.requests else None


def _wrong_kind(
    config: AllocatedConfig, content: Config, allocated: AllocatedDevice, offered: DraDevice
) -> ParameterError:
    device = offered.device
    return ParameterError(
        config.place,
        "kind",
        f"{type(content).__name__} is for request {allocated.request}, whose device {device.name} is of kind "
        f"{device.kind}",
        f"write {kind_for(device.kind)}, or name other requests",
    )


def _applied(options: EditOptions, content: Config) -> EditOptions:
    if isinstance(content, NicConfig):
        return replace(
            options,
            rdma=options.rdma if content.rdma is None else content.rdma,
            vhost_net=options.vhost_net if content.vhost_net is None else content.vhost_net,
        )
    said = {"gdrcopy": content.gdrcopy, "gds": content.gds, "mofed": content.mofed}
    wanted = [name for name, on in said.items() if (name in options.features if on is None else on)]
    options = replace(options, features=tuple(wanted))
    if isinstance(content, GpuConfig):
        options = replace(
            options,
            imex_channels=options.imex_channels if content.imex_channels is None else content.imex_channels,
            imex_required=options.imex_required if content.imex_required is None else content.imex_required,
        )
    return options
