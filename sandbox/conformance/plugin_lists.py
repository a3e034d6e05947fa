"""Rules of a device plugin's lists: each message is the whole truth, and every device in it can be used."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.conformance.observed import ObservedRegistration
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.plugin_registration import each_plugin
from sandbox.conformance.plugin_testbed import HEALTHY, JudgedPlugin, PluginTestbed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable
from sandbox.kubelet.dialling import MAX_MESSAGE

UNHEALTHY = "Unhealthy"
LONGEST_ID: Final = 63
_MOST_NAMED: Final = 5


def named(ids: list[str]) -> str:
    """The first of these ids, as a message shows them."""
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(map(repr, ids[:_MOST_NAMED])) + more


async def list_stays_open(bed: PluginTestbed) -> str | None:
    """Check that ListAndWatch stays open: a kubelet takes its end for the end of the plugin."""

    if bed.has_program:
        current = bed.kubelet.current().values()
        await bed.kubelet.until(lambda: any(each.stream_problem for each in current), bed.pace.quiet)

    async def judge(plugin: JudgedPlugin) -> None:
        registration = plugin.registration
        if registration is not None:
            if registration.stream_problem:
                raise RuleBroken(f"{plugin.name}: ListAndWatch did not stay open: {registration.stream_problem}")
            return
        lists = plugin.client.lists()
        try:
            async with asyncio.timeout(bed.pace.call):
                await anext(lists)
            async with asyncio.timeout(bed.pace.quiet):
                async for _ in lists:
                    pass
        except TimeoutError:
            return
        except StopAsyncIteration:
            raise RuleBroken(f"{plugin.name}: ListAndWatch ended before it sent a list") from None
        except JudgedCallFailed as error:
            raise RuleBroken(f"{plugin.name}: {error}") from error
        finally:
            await lists.aclose()
        raise RuleBroken(f"{plugin.name}: the plugin ended the ListAndWatch stream after its list; it must stay open")

    return await each_plugin(bed, judge)


async def full_lists(bed: PluginTestbed) -> str | None:
    """Check that every message lists all devices: a kubelet forgets those that the newest one lacks."""

    async def judge(plugin: JudgedPlugin) -> str | None:
        registration = plugin.registration
        first, second = await plugin.devices(), await plugin.fresh_devices()
        _check_same(plugin.name, "a stream's first message", first, "that of another stream", second)
        if registration is None or registration.messages == 1:
            return f"{plugin.name} sent one message on each stream; later ones were not seen"
        _check_same(
            plugin.name, "a later message", list(registration.last_message.devices), "a new stream's first", second
        )
        return None

    return await each_plugin(bed, judge)


async def reports_changes(bed: PluginTestbed) -> str | None:
    """Check that the plugin sends a list when a device changes: the kubelet never asks."""
    if bed.change is None:
        raise RuleNotApplicable("nothing is known that changes a device; give --change COMMAND")
    if all(each.stream_problem for each in bed.kubelet.current().values()):
        raise RuleNotApplicable("it ended its streams itself; the rule list-stays-open judges that")
    before = {name: each.messages for name, each in bed.kubelet.current().items()}
    await bed.change()

    def changed() -> list[ObservedRegistration]:
        return [each for name, each in bed.kubelet.current().items() if each.messages > before.get(name, 0)]

    await bed.kubelet.until(changed, bed.pace.patience)
    if not changed():
        raise RuleBroken(f"a device was changed, and no new list came within {bed.pace.patience:g} s")
    for each in changed():
        if _states(each.last_message) == _states(each.first_message):
            raise RuleBroken(f"{each.resource}: a device was changed; a new list came and is the same as before")
    seen = ", ".join(f"{each.resource}" for each in changed())
    # The changed device must not change what other rules see.
    await bed.discard()
    return f"a new list of {seen} came"


def _states(message: api_pb2.ListAndWatchResponse) -> dict[str, bytes]:
    return {device.ID: device.SerializeToString(deterministic=True) for device in message.devices}


def _check_same(name: str, what: str, devices: list[api_pb2.Device], other: str, others: list[api_pb2.Device]) -> None:
    ids, other_ids = {device.ID for device in devices}, {device.ID for device in others}
    if ids != other_ids:
        raise RuleBroken(
            f"{name}: {what} lists {len(ids)} devices, {other} {len(other_ids)} (they differ in "
            f"{named(sorted(ids ^ other_ids))}); every message must list all devices"
        )


async def device_ids(bed: PluginTestbed) -> str | None:
    """Check the ids, by which the kubelet, its checkpoint and podresources name a device."""

    async def judge(plugin: JudgedPlugin) -> None:
        ids = [device.ID for device in await plugin.devices()]
        twice = [id_ for id_, count in Counter(ids).items() if count > 1]
        if "" in ids:
            raise RuleBroken(f"{plugin.name}: a device has an empty ID")
        if twice:
            raise RuleBroken(f"{plugin.name}: IDs are listed more than once: {named(twice)}")
        long = [id_ for id_ in ids if len(id_) > LONGEST_ID]
        if long:
            raise RuleBroken(
                f"{plugin.name}: the ID {long[0]!r} has {len(long[0])} characters; {LONGEST_ID} are allowed"
            )

    return await each_plugin(bed, judge)


async def device_health(bed: PluginTestbed) -> str | None:
    """Check the words for health: a kubelet takes any other word, and any other spelling, for unhealthy."""

    async def judge(plugin: JudgedPlugin) -> None:
        for device in await plugin.devices():
            if device.health not in (HEALTHY, UNHEALTHY):
                raise RuleBroken(
                    f"{plugin.name}: device {device.ID!r} has the health {device.health!r}; "
                    f"it must be {HEALTHY!r} or {UNHEALTHY!r}"
                )

    return await each_plugin(bed, judge)


async def device_numa(bed: PluginTestbed) -> str | None:
    """Check that no NUMA node is -1: sysfs means no node by it, and a kubelet no topology."""

    async def judge(plugin: JudgedPlugin) -> None:
        for device in await plugin.devices():
            for node in device.topology.nodes:
                if node.ID < 0:
                    raise RuleBroken(
                        f"{plugin.name}: device {device.ID!r} has the NUMA node {node.ID}; leave topology out of a "
                        "device without a NUMA node"
                    )

    return await each_plugin(bed, judge)


async def list_size(bed: PluginTestbed) -> str | None:
    """Check the size of a list: a kubelet breaks the stream at a larger message, and does not come back."""

    async def judge(plugin: JudgedPlugin) -> None:
        message = api_pb2.ListAndWatchResponse(devices=await plugin.devices())
        size = message.ByteSize()
        if size > MAX_MESSAGE:
            raise RuleBroken(
                f"{plugin.name}: the list of {len(message.devices)} devices has {size} bytes; a kubelet takes "
                f"{MAX_MESSAGE}"
            )

    return await each_plugin(bed, judge)
