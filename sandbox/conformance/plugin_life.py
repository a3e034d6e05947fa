"""Rules of a device plugin's life: restarts of the kubelet, lost streams and sockets, its own end, and load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import grpc

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.conformance.growth import MOST_ROUNDS, growth, is_judged
from sandbox.conformance.plugin_client import JudgedCallFailed, PluginClient
from sandbox.conformance.plugin_lists import named
from sandbox.conformance.plugin_registration import each_plugin, each_plugin_anew
from sandbox.conformance.plugin_testbed import JudgedPlugin, PluginTestbed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable

AT_ONCE: Final = 16
"""Calls at once; a kubelet makes one after the other."""
STREAMS: Final = 16
"""ListAndWatch streams open at once: those of some re-registrations and of some tools."""
_DEAD = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)


async def registers_after_kubelet(bed: PluginTestbed) -> str | None:
    """Check that the plugin calls Register on a new ``kubelet.sock``, after one that is dead and one that is gone."""
    registrations = await bed.through_register()
    resources = {each.resource for each in registrations}
    for killed, how in ((True, "was killed and"), (False, "removed its kubelet.sock and")):
        last = await bed.kubelet.restart(watches=False, killed=killed)
        missing = await bed.registered_after(last, resources)
        if missing:
            raise RuleBroken(f"the kubelet {how} made a new kubelet.sock at its start: {missing}")
    return bed.own_end


async def registry_after_kubelet(bed: PluginTestbed) -> str | None:
    """Check that the plugin is in plugins_registry for a new kubelet, which registers what it finds there."""
    current = bed.kubelet.current()
    resources = {name for name, each in current.items() if each.door == "watcher"}
    if not resources:
        raise RuleNotApplicable("it has no socket in plugins_registry")
    last = await bed.kubelet.restart()
    missing = await bed.registered_after(last, resources)
    if missing:
        raise RuleBroken(f"after a restart of the kubelet, which looks into plugins_registry: {missing}")
    return bed.own_end


async def serves_after_lost_stream(bed: PluginTestbed) -> str | None:
    """Check that the plugin serves the next client after a lost stream, if need be by a new start."""

    async def judge(plugin: JudgedPlugin) -> str:
        if bed.own_end:
            return bed.own_end  # It is another process now, and has shown what it does.
        client = bed.client(plugin.client.socket)
        lists = client.lists()
        try:
            async with asyncio.timeout(bed.pace.call):
                await anext(lists)
        except (JudgedCallFailed, StopAsyncIteration, TimeoutError):
            raise RuleNotApplicable(f"{plugin.name} sends no list on a second stream") from None
        finally:
            await client.close()
            await lists.aclose()
        try:
            for _ in range(3):  # The first of them may reach the plugin before the end of the stream does.
                await plugin.client.first_list()
            await plugin.client.options()
        except JudgedCallFailed as error:
            broken = f"{plugin.name}: after the end of a ListAndWatch stream: {error}"
            if not await bed.own_end_now():
                raise RuleBroken(broken) from error
            missing = await bed.registered_after(bed.kubelet.last_number)
            if missing:
                raise RuleBroken(f"{broken}; {missing}") from error
        return bed.own_end

    # The stream of a rule before may be the one that it lost.
    return await each_plugin_anew(bed, judge)


async def registers_after_lost_stream(bed: PluginTestbed) -> str | None:
    """Check that the plugin registers when its stream is lost: the kubelet does not connect again."""
    current = bed.kubelet.current()
    last = max(each.number for each in current.values())
    followed = {name: each for name, each in current.items() if not each.stream_problem}
    if not followed:
        raise RuleNotApplicable("it ended its streams itself; the rule list-stays-open judges that")
    for registration in followed.values():
        await bed.kubelet.drop(registration)
    missing = await bed.registered_after(last, followed)
    if missing:
        raise RuleBroken(
            f"after the kubelet lost its ListAndWatch streams: {missing}; a kubelet does not connect again by itself, "
            "so that the devices stay unhealthy until it or the plugin is restarted"
        )
    return bed.own_end


async def registers_after_lost_socket(bed: PluginTestbed) -> str | None:
    """Check that the plugin registers when its socket is gone: a new kubelet empties device-plugins of sockets."""
    await bed.through_register()
    current = bed.kubelet.current()
    last = max(each.number for each in current.values())
    lost = {name: each for name, each in current.items() if bed.kubelet.device_plugins in Path(each.socket).parents}
    if not lost:
        raise RuleNotApplicable("its sockets are not in device-plugins, the only folder where kubelets remove any")
    for registration in lost.values():
        Path(registration.socket).unlink(missing_ok=True)
    missing = await bed.registered_after(last, lost)
    if missing:
        raise RuleBroken(
            f"after its sockets were deleted: {missing}; it may notice a new kubelet.sock, which "
            "registers-after-kubelet judges"
        )
    return bed.own_end


async def keeps_ids(bed: PluginTestbed) -> str | None:
    """Check that ids survive a restart of the plugin: containers hold devices by them."""
    before = {plugin.name: [device.ID for device in await plugin.devices()] for plugin in await bed.plugins()}
    await bed.begin()
    for plugin in await bed.plugins():
        ids = [device.ID for device in await plugin.devices()]
        gone = [id_ for id_ in before.get(plugin.name, ()) if id_ not in ids]
        if gone:
            raise RuleBroken(f"{plugin.name}: after a restart of the plugin, the devices {named(gone)} are gone")
    return None


async def serves_load(bed: PluginTestbed) -> str | None:
    """Check that the plugin answers as many calls side by side as a node of 1,000 devices makes."""

    async def judge(plugin: JudgedPlugin) -> str | None:
        ids = await plugin.healthy()
        limit = asyncio.Semaphore(AT_ONCE)

        async def allocate(number: int) -> None:
            async with limit:
                try:
                    await plugin.client.allocate([ids[number % len(ids)]])
                except JudgedCallFailed as error:
                    if error.code in _DEAD:
                        raise

        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(bed.pace.calls):
                    tasks.create_task(allocate(number))
        except* JudgedCallFailed as errors:
            failed = errors.exceptions[0]
            raise RuleBroken(f"{plugin.name}: of {bed.pace.calls} calls, {AT_ONCE} at once: {failed}") from failed
        return (
            f"{plugin.name} lists {len(ids)} devices; they were asked for again and again" if len(ids) < 1000 else None
        )

    return await each_plugin(bed, judge)


async def serves_streams(bed: PluginTestbed) -> str | None:
    """Check that many open streams leave room for calls: a kubelet's lost streams may stay open for long."""

    async def judge(plugin: JudgedPlugin) -> None:
        async with AsyncExitStack() as streams:
            for number in range(STREAMS):
                client = bed.client(plugin.client.socket)
                streams.push_async_callback(client.close)
                await _open(plugin.name, client, number, bed.pace.call, streams)
            try:
                await plugin.client.options()
            except JudgedCallFailed as error:
                raise RuleBroken(f"{plugin.name}: with {STREAMS} ListAndWatch streams open: {error}") from error

    return await each_plugin(bed, judge)


async def _open(name: str, client: PluginClient, number: int, seconds: float, streams: AsyncExitStack) -> None:
    lists: AsyncGenerator[api_pb2.ListAndWatchResponse] = client.lists()
    streams.push_async_callback(lists.aclose)
    try:
        async with asyncio.timeout(seconds):
            await anext(lists)
    except (TimeoutError, StopAsyncIteration, JudgedCallFailed) as error:
        if not number:
            raise RuleNotApplicable(f"{name} sends no list on a further stream") from None
        problem = {TimeoutError: "gets no list", StopAsyncIteration: "is ended"}.get(type(error), f"fails: {error}")
        raise RuleBroken(f"{name}: with {number} ListAndWatch streams open, a further one {problem}") from error


async def does_not_grow(bed: PluginTestbed) -> str | None:
    """Check that calls, streams and registrations leave nothing in the plugin's process."""
    if bed.program.size() is None:
        raise RuleNotApplicable("the size of its process cannot be read")
    sizes = []
    # The first round fills caches and pools; what it takes does not count.
    for _ in range(MOST_ROUNDS + 1):
        for plugin in await bed.plugins():
            await _round(bed, plugin)
        last = await bed.kubelet.restart(watches=bed.kubelet.watches)
        missing = await bed.registered_after(last)
        if missing:
            raise RuleNotApplicable(f"after a restart of the kubelet: {missing}; other rules judge that")
        size = bed.program.size()
        if size is None:
            raise RuleBroken(f"the plugin {bed.program.ended()}")
        sizes.append(size)
        if is_judged(sizes):
            break
    problem = growth(sizes, "calls, streams and a restart of the kubelet")
    if problem:
        raise RuleBroken(problem)
    return "; ".join(
        filter(None, (f"{sizes[-1].memory / 1024:.1f} MiB, {sizes[-1].descriptors} descriptors", bed.own_end))
    )


async def _round(bed: PluginTestbed, plugin: JudgedPlugin) -> None:
    ids = await plugin.healthy(0)
    for number in range(bed.pace.calls // 5 if ids else 0):
        # What a call comes to is judged by other rules; the plugin may have gone on to a new socket meanwhile.
        with suppress(JudgedCallFailed):
            await plugin.client.allocate([ids[number % len(ids)]])
    for _ in range(bed.pace.streams):
        client = bed.client(plugin.client.socket)
        try:
            await client.first_list()
        except JudgedCallFailed:
            break  # Other rules judge streams.
        finally:
            await client.close()
