"""Rules of a device plugin's registration: its request, and that it answers calls during Register."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import grpc

from node.rules import explain_resource_name
from sandbox.conformance.life import has_registered
from sandbox.conformance.observed import ObservedRegistration
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.plugin_testbed import JudgedPlugin, PluginTestbed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable

VERSION = "v1beta1"
_FLAGS = ("pre_start_required", "get_preferred_allocation_available")


async def each_plugin(bed: PluginTestbed, judge: Callable[[JudgedPlugin], Awaitable[str | None]]) -> str | None:
    """Judge every resource; the rule is not applicable only if it is so for all of them."""
    notes: list[tuple[str, str]] = []
    reasons: list[tuple[str, str]] = []
    plugins = await bed.plugins()
    for plugin in plugins:
        try:
            notes.append((plugin.name, await judge(plugin) or ""))
        except RuleNotApplicable as reason:
            reasons.append((plugin.name, str(reason)))
    if len(reasons) == len(plugins):
        raise RuleNotApplicable(_said_once(reasons))
    return _said_once(notes + reasons)


def _said_once(texts: Sequence[tuple[str, str]]) -> str:
    """Join texts about resources of these names; what is true of several is said of the first, with their number."""
    alike: dict[str, list[str]] = {}
    for name, text in texts:
        if text:
            alike.setdefault(text.replace(name, "\0"), []).append(text)
    return "; ".join(
        said[0] if len(said) == 1 or "\0" not in pattern else f"{said[0]} ({_more(len(said) - 1)})"
        for pattern, said in alike.items()
    )


def _more(count: int) -> str:
    return "the same of one more resource" if count == 1 else f"the same of {count} more resources"


async def each_plugin_anew(bed: PluginTestbed, judge: Callable[[JudgedPlugin], Awaitable[str | None]]) -> str | None:
    """Judge every resource; start the plugin again if earlier rules made this one inapplicable."""
    try:
        return await each_plugin(bed, judge)
    except RuleNotApplicable:
        if not bed.has_program:
            raise
    await bed.begin()
    return await each_plugin(bed, judge)


def _registration(plugin: JudgedPlugin) -> ObservedRegistration:
    if plugin.registration is None:
        raise RuleNotApplicable("no registration was seen; give the command, not a socket")
    return plugin.registration


def _through_watcher(plugin: JudgedPlugin) -> ObservedRegistration:
    registration = _registration(plugin)
    if registration.door != "watcher":
        raise RuleNotApplicable(f"{plugin.name} has no socket in plugins_registry")
    return registration


async def registers(bed: PluginTestbed) -> str | None:
    """Check that the plugin registers and sends a list."""
    await has_registered(bed)
    return "; ".join(
        [
            f"{plugin.name} by {'Register' if _registration(plugin).door == 'register' else 'plugins_registry'}, "
            f"{len(await plugin.devices())} devices"
            for plugin in await bed.plugins()
        ]
    )


async def resource_name(bed: PluginTestbed) -> str | None:
    """Check the resource's name: kubelets refuse an invalid one."""

    async def judge(plugin: JudgedPlugin) -> None:
        problem = explain_resource_name(_registration(plugin).resource)
        if problem is not None:
            raise RuleBroken(problem)

    return await each_plugin(bed, judge)


async def api_version(bed: PluginTestbed) -> str | None:
    """Check the API version: kubelets take one."""

    async def judge(plugin: JudgedPlugin) -> None:
        registration = _registration(plugin)
        if VERSION not in registration.versions:
            field = "Register.version" if registration.door == "register" else "GetInfo.supported_versions"
            said = ", ".join(map(repr, registration.versions)) or "empty"
            raise RuleBroken(f"{plugin.name}: {field} is {said}; it must be {VERSION!r}")

    return await each_plugin(bed, judge)


async def endpoint(bed: PluginTestbed) -> str | None:
    """Check the endpoint: a kubelet joins Register's with its folder, and takes GetInfo's as it stands."""

    async def judge(plugin: JudgedPlugin) -> None:
        registration = _registration(plugin)
        said = registration.endpoint
        if registration.door == "register" and (not said or "/" in said):
            raise RuleBroken(
                f"{plugin.name}: Register.endpoint is {said!r}; it must be the socket's file name in device-plugins, "
                "without a folder"
            )
        if registration.door == "watcher" and said and not said.startswith("/"):
            raise RuleBroken(
                f"{plugin.name}: GetInfo.endpoint is {said!r}; it must be an absolute path, or empty for the "
                "registration socket itself"
            )

    return await each_plugin(bed, judge)


async def own_socket(bed: PluginTestbed) -> str | None:
    """Check that each resource has its own socket: no call carries the resource's name."""
    counts = Counter(_registration(plugin).socket for plugin in await bed.plugins())
    for socket, count in counts.items():
        if count > 1:
            names = [plugin.name for plugin in await bed.plugins() if _registration(plugin).socket == socket]
            raise RuleBroken(
                f"{', '.join(names)} are served on one socket, {bed.kubelet.as_known(socket)}; each needs its own"
            )
    return None


async def registry_calls(bed: PluginTestbed) -> str | None:
    """Check the plugin's answers to the calls of the plugin watcher."""

    async def judge(plugin: JudgedPlugin) -> None:
        registration = _through_watcher(plugin)
        if registration.type != "DevicePlugin":
            raise RuleBroken(f"{plugin.name}: GetInfo.type is {registration.type!r}; it must be 'DevicePlugin'")
        if registration.notify_problem:
            raise RuleBroken(
                f"{plugin.name}: {registration.notify_problem}; kubelets from 1.36 on deregister such a plugin again"
            )

    return await each_plugin(bed, judge)


async def options_agree(bed: PluginTestbed) -> str | None:
    """Check that both options agree: kubelets up to 1.24 read those of Register, later ones ask for them."""
    for registration in await bed.through_register():
        answered = registration.options
        if answered is None:
            raise RuleNotApplicable(f"{registration.resource} does not answer GetDevicePluginOptions")
        for flag in _FLAGS:
            announced = bool(registration.announced is not None and getattr(registration.announced, flag))
            if announced != getattr(answered, flag):
                raise RuleBroken(
                    f"{registration.resource}: Register.options.{flag} is {announced}, "
                    f"GetDevicePluginOptions answers {getattr(answered, flag)}"
                )
    return None


async def options_implemented(bed: PluginTestbed) -> str | None:
    """Check that the plugin implements the announced methods: a kubelet calls them, and refuses the pod otherwise."""

    async def judge(plugin: JudgedPlugin) -> None:
        options = await plugin.options()
        ids = await plugin.healthy()
        try:
            if options.get_preferred_allocation_available:
                await plugin.client.preferred(ids, (), 1)
            if options.pre_start_required:
                await plugin.client.pre_start(ids[:1])
        except JudgedCallFailed as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                announced = f"{plugin.name}: the options announce {error.method}, but it is not implemented"
                raise RuleBroken(announced) from error

    return await each_plugin(bed, judge)


async def answers_while_registering(bed: PluginTestbed) -> str | None:
    """Check that the plugin answers while its Register call is pending: kubelets from 1.25 on dial back first."""
    # The first of each and the newest: in between a kubelet's start deletes the plugin's socket, and may meet a call.
    newest = {each.resource: each.pending_problem for each in await bed.through_register()}
    for resource, problem in newest.items():
        if found := bed.kubelet.first_problems.get(resource) or problem:
            raise RuleBroken(
                f"{resource}: while its Register call was pending: {found}; serve the socket before the call, and do "
                "not block what answers"
            )
    return None
