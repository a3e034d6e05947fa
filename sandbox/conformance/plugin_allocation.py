"""Rules of a device plugin's answers: Allocate, GetPreferredAllocation, PreStartContainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

import grpc

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.conformance.cdi import cdi_name_fault
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.plugin_lists import named
from sandbox.conformance.plugin_registration import each_plugin, each_plugin_anew
from sandbox.conformance.plugin_testbed import JudgedPlugin, PluginTestbed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable

MOST: Final = 16
"""Devices of a resource that are asked for one by one."""
UNKNOWN_ID: Final = "conformance-no-such-device"
ContainerAnswer = api_pb2.ContainerAllocateResponse


async def _allocate(plugin: JudgedPlugin, *containers: Sequence[str]) -> list[ContainerAnswer]:
    """The answers of an Allocate that another rule judges; raises ``RuleNotApplicable`` if it is refused."""
    try:
        return await plugin.client.allocate(*containers)
    except JudgedCallFailed as error:
        raise RuleNotApplicable(
            f"{plugin.name}: {error}; the rules allocates and repeats-allocate judge that"
        ) from error


async def _answers(plugin: JudgedPlugin) -> list[tuple[str, ContainerAnswer]]:
    """The answer for each of the first devices, as (id, answer); devices that are refused or get none are left out."""
    found = []
    for id_ in (await plugin.healthy())[:MOST]:
        try:
            responses = await plugin.client.allocate([id_])
        except JudgedCallFailed:
            continue  # Another rule's business.
        found += [(id_, response) for response in responses[:1]]
    if not found:
        raise RuleNotApplicable(f"{plugin.name} answers Allocate for none of its devices")
    return found


async def allocates(bed: PluginTestbed) -> str | None:
    """Check that the plugin allocates every device that it lists as healthy."""

    async def judge(plugin: JudgedPlugin) -> str | None:
        ids = await plugin.healthy()
        for id_ in ids[:MOST]:
            try:
                await plugin.client.allocate([id_])
            except JudgedCallFailed as error:
                raise RuleBroken(f"{plugin.name}: for {id_!r}, which the plugin lists as healthy: {error}") from error
        return f"{MOST} of {len(ids)} devices of {plugin.name} were asked for" if len(ids) > MOST else None

    return await each_plugin(bed, judge)


async def answers_each_container(bed: PluginTestbed) -> str | None:
    """Check that each container gets an answer: kubelets up to 1.17 ask for all containers of a pod at once."""

    async def judge(plugin: JudgedPlugin) -> None:
        ids = (await plugin.healthy())[:2]
        for containers in ([ids[:1]], [[id_] for id_ in ids]):
            responses = await _allocate(plugin, *containers)
            if len(responses) != len(containers):
                raise RuleBroken(
                    f"{plugin.name}: Allocate for {len(containers)} containers has {len(responses)} container responses"
                )

    return await each_plugin(bed, judge)


async def keeps_order(bed: PluginTestbed) -> str | None:
    """Check the order of the answers, which alone says which container each is for."""

    async def judge(plugin: JudgedPlugin) -> None:
        # The last and not the second: shares of one device come together, and give the same.
        first, *_, second = await plugin.healthy(2)
        alone = [(await _allocate(plugin, [id_]))[:1] for id_ in (first, second)]
        together = await _allocate(plugin, [first], [second])
        if not all(alone) or len(together) != 2:
            raise RuleNotApplicable(f"{plugin.name} does not answer for each container")
        if _same(alone[0][0], alone[1][0]):
            raise RuleNotApplicable(f"the answers of {plugin.name} do not differ from device to device")
        if not (_same(together[0], alone[0][0]) and _same(together[1], alone[1][0])):
            raise RuleBroken(
                f"{plugin.name}: Allocate for the containers ({first!r}) and ({second!r}) does not answer in this order"
            )

    return await each_plugin(bed, judge)


async def repeats_allocate(bed: PluginTestbed) -> str | None:
    """Check that Allocate can be repeated: a plugin never learns of a pod's end, nor of its refusal."""

    async def judge(plugin: JudgedPlugin) -> None:
        ids = (await plugin.healthy())[:1]
        first = await _allocate(plugin, ids)
        for _ in range(2):
            try:
                again = await plugin.client.allocate(ids)
            except JudgedCallFailed as error:
                raise RuleBroken(f"{plugin.name}: a further Allocate for {named(ids)}: {error}") from error
            if len(first) != len(again) or not all(_same(*pair) for pair in zip(first, again, strict=True)):
                raise RuleBroken(f"{plugin.name}: a further Allocate for {named(ids)} is answered differently")

    # What was allocated for rules before may be what it refuses now.
    return await each_plugin_anew(bed, judge)


async def refuses_unknown(bed: PluginTestbed) -> str | None:
    """Check that the plugin refuses unknown ids: a kubelet may ask from an old list."""

    async def judge(plugin: JudgedPlugin) -> None:
        ids = await plugin.healthy()
        for asked in ([UNKNOWN_ID], [ids[0], UNKNOWN_ID]):
            try:
                await plugin.client.allocate(asked)
            except JudgedCallFailed as error:
                if error.late or error.code is grpc.StatusCode.UNAVAILABLE:
                    raise RuleBroken(f"{plugin.name}: for the unknown id {UNKNOWN_ID!r}: {error}") from error
            else:
                raise RuleBroken(f"{plugin.name}: Allocate for {named(asked)} succeeds, though one id is unknown")

    return await each_plugin(bed, judge)


async def container_paths(bed: PluginTestbed) -> str | None:
    """Check the paths of mounts and devices: a runtime fails to create a container with bad ones."""

    async def judge(plugin: JudgedPlugin) -> None:
        for id_, response in await _answers(plugin):
            for problem in _path_faults(response):
                raise RuleBroken(f"{plugin.name}: Allocate for {id_!r}: {problem}")

    return await each_plugin(bed, judge)


async def cdi_names(bed: PluginTestbed) -> str | None:
    """Check the CDI names: a runtime resolves those of the form vendor/class=name, each once."""

    async def judge(plugin: JudgedPlugin) -> None:
        answers = await _answers(plugin)
        if not any(response.cdi_devices for _, response in answers):
            raise RuleNotApplicable(f"{plugin.name} answers without CDI devices")
        for id_, response in answers:
            names = [device.name for device in response.cdi_devices]
            problem = next((fault for name in names if (fault := cdi_name_fault(name))), "")
            twice = [name for name, count in Counter(names).items() if count > 1]
            if not problem and twice:
                problem = f"the CDI device {twice[0]!r} is named twice"
            if problem:
                raise RuleBroken(f"{plugin.name}: Allocate for {id_!r}: {problem}")

    return await each_plugin(bed, judge)


async def preferred_legal(bed: PluginTestbed) -> str | None:
    """Check that preferences are legal: a kubelet ignores other ids, and cuts or tops up the rest at random."""

    async def judge(plugin: JudgedPlugin) -> str | None:
        await _require_preference(plugin)
        ids = await plugin.healthy(2)
        some = ids[:64]
        cases: list[tuple[list[str], list[str], int]] = [
            (some, [], 1),
            (some, [some[-1]], 2),
            (some[1:], [], 1),
            (some, [], len(some)),
        ]
        if len(some) > 3:
            cases += [(some[1:], [some[2], some[-1]], 3), (some[::2], [], len(some[::2]))]
        for available, must_include, size in cases:
            chosen = await _preferred(plugin, available, must_include, size)
            _check_preferred(plugin.name, chosen, available, must_include, size)
        return f"asked with {len(some)} of {len(ids)} devices" if len(some) < len(ids) else None

    return await each_plugin(bed, judge)


async def preferred_odd(bed: PluginTestbed) -> str | None:
    """Check that the plugin survives requests that it cannot fulfil."""

    async def judge(plugin: JudgedPlugin) -> None:
        await _require_preference(plugin)
        ids = (await plugin.healthy())[:4]
        for available, must_include, size in ((ids, [], len(ids) + 1), ([], [], 1), (ids, ids, 0), (ids, ids[:1], -1)):
            try:
                await plugin.client.preferred(available, must_include, size)
            except JudgedCallFailed as error:
                if error.late or error.code is grpc.StatusCode.UNAVAILABLE:
                    raise RuleBroken(
                        f"{plugin.name}: for {size} of {len(available)} devices, {len(must_include)} of them required: "
                        f"{error}"
                    ) from error
        await _check_serves(plugin)

    return await each_plugin(bed, judge)


async def empty_requests(bed: PluginTestbed) -> str | None:
    """Check that the plugin survives a request without containers, and one for no device."""

    async def judge(plugin: JudgedPlugin) -> None:
        requests: tuple[tuple[list[str], ...], ...] = ((), ([],))
        for containers in requests:
            try:
                await plugin.client.allocate(*containers)
            except JudgedCallFailed as error:
                if error.late or error.code is grpc.StatusCode.UNAVAILABLE:
                    what = "no device" if containers else "no container"
                    raise RuleBroken(f"{plugin.name}: Allocate for {what}: {error}") from error
        await _check_serves(plugin)

    return await each_plugin(bed, judge)


async def repeats_pre_start(bed: PluginTestbed) -> str | None:
    """Check that PreStartContainer can be repeated: a kubelet calls it at every start of the container."""

    async def judge(plugin: JudgedPlugin) -> None:
        if not (await plugin.options()).pre_start_required:
            raise RuleNotApplicable(f"{plugin.name} does not ask for PreStartContainer")
        ids = (await plugin.healthy())[:1]
        await _allocate(plugin, ids)
        for _ in range(2):
            try:
                await plugin.client.pre_start(ids)
            except JudgedCallFailed as error:
                if error.code is not grpc.StatusCode.UNIMPLEMENTED:
                    raise RuleBroken(f"{plugin.name}: for {named(ids)}: {error}") from error

    return await each_plugin(bed, judge)


async def _check_serves(plugin: JudgedPlugin) -> None:
    try:
        await plugin.client.options()
    except JudgedCallFailed as error:
        raise RuleBroken(f"{plugin.name}: after the request: {error}") from error


async def _require_preference(plugin: JudgedPlugin) -> None:
    if not (await plugin.options()).get_preferred_allocation_available:
        raise RuleNotApplicable(f"{plugin.name} has no GetPreferredAllocation")


async def _preferred(
    plugin: JudgedPlugin, available: Sequence[str], must_include: Sequence[str], size: int
) -> list[str]:
    try:
        responses = await plugin.client.preferred(available, must_include, size)
    except JudgedCallFailed as error:
        if error.code is grpc.StatusCode.UNIMPLEMENTED:
            raise RuleNotApplicable(f"{plugin.name} does not implement GetPreferredAllocation") from error
        raise RuleBroken(f"{plugin.name}: for {size} of {len(available)} devices: {error}") from error
    if len(responses) > 1:
        raise RuleBroken(f"{plugin.name}: GetPreferredAllocation for one container answers for {len(responses)}")
    return responses[0] if responses else []


def _check_preferred(
    name: str, chosen: Sequence[str], available: Sequence[str], must_include: Sequence[str], size: int
) -> None:
    """Raise ``RuleBroken`` unless the answer is a legal choice; an empty one is no preference."""
    if not chosen:
        return
    asked = f"{name}: of {len(available)} devices {size} are asked for"
    foreign = [id_ for id_ in chosen if id_ not in available]
    missing = [id_ for id_ in must_include if id_ not in chosen]
    if foreign:
        raise RuleBroken(f"{asked}; the answer has {named(foreign)}, which is not available")
    if missing:
        raise RuleBroken(f"{asked}, {named(list(must_include))} among them; the answer lacks {named(missing)}")
    if len(chosen) != size or len(set(chosen)) != size:
        raise RuleBroken(f"{asked}; the answer has {len(chosen)} ids, {len(set(chosen))} of them different")


def _path_faults(response: ContainerAnswer) -> Iterable[str]:
    for mount in response.mounts:
        yield from _path_fault("a mount's container_path", mount.container_path)
        yield from _path_fault("a mount's host_path", mount.host_path)
    for device in response.devices:
        yield from _path_fault("a device's container_path", device.container_path)
        yield from _path_fault("a device's host_path", device.host_path)
        if not device.permissions or set(device.permissions) - set("rwm"):
            yield f"the permissions of {device.host_path!r} are {device.permissions!r}; they must be of r, w and m"
    for name in response.envs:
        if not name or "=" in name or "\0" in name:
            yield f"{name!r} is no name of an environment variable"


def _path_fault(what: str, path: str) -> Iterable[str]:
    if not PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        yield f"{what} is {path!r}; it must be an absolute path"


def _same(one: ContainerAnswer, other: ContainerAnswer) -> bool:
    """Whether two answers give a container the same; annotations may have unique values."""
    return _plain(one) == _plain(other)


def _plain(answer: ContainerAnswer) -> tuple[object, ...]:
    return (
        dict(answer.envs),
        sorted(mount.SerializeToString(deterministic=True) for mount in answer.mounts),
        sorted(device.SerializeToString(deterministic=True) for device in answer.devices),
        sorted(device.name for device in answer.cdi_devices),
    )
