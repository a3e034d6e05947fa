"""Check for plugins of others that serve our resources: people forget to remove the plugin they had before.

Sockets are asked GetInfo only. ListAndWatch would tell more, but some plugins hand an update to a single stream, and
one that we opened would take it from the kubelet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc

from node.inventory.vendors import VENDORS
from node.rules import PROFILE, matches_pattern
from node.sockets import PREFIX, is_answered, is_socket
from ostler.doctor.check import Check
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, failed, joined, several, warning
from plugin.kubelet import KUBELET_SOCKET
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc

TIMEOUT = 2.0
"""Seconds that every plugin gets, all at the same time."""

_DRIVERS = {vendor.dra_driver: tuple({resource.domain for resource in vendor.resources}) for vendor in VENDORS}
"""DRA drivers of the makers of GPUs, and how the resources begin under which we offer the same GPUs."""


@dataclass(frozen=True, slots=True)
class PluginSocket:
    """A plugin's socket: whether anybody listens, and what GetInfo says (empty where it says nothing)."""

    path: Path
    answered: bool
    type: str = ""
    name: str = ""


def judge(
    sockets: Iterable[PluginSocket], own: frozenset[Path], wanted: tuple[str, ...], registry: Path, driver: str = ""
) -> Finding:
    """Whether somebody else serves one of ``wanted`` (resource names, in which ``{profile}`` stands for anything).

    ``driver``: name of our DRA driver, empty where we serve none.
    """
    findings, others = [], []
    for socket in sockets:
        if socket.path in own or (driver and (socket.type, socket.name) == ("DRAPlugin", driver)):
            continue
        file = socket.path.name
        if not socket.answered:
            if socket.path.parent == registry:
                found = f"nobody listens at {socket.path}, and the kubelet goes on trying"
                findings.append(warning(found, f"remove it: rm {socket.path}"))
        elif socket.type == "DevicePlugin" and _is_wanted(socket.name, wanted):
            found = f"{socket.path} serves {socket.name}, too: the newest one wins, and devices are given out twice"
            findings.append(
                failed(found, "remove the other plugin (its DaemonSet), or give ours another resource name")
            )
        elif socket.type == "DRAPlugin" and any(name.startswith(_DRIVERS.get(socket.name, ())) for name in wanted):
            found = f"{socket.path} offers the same devices through DRA ({socket.name}): they are given out twice"
            findings.append(failed(found, "let only one of both offer them: remove the driver, or our rule"))
        elif not socket.type and (guess := _guessed(file, wanted)):
            found = f"{socket.path} does not say what it serves; by its name it may be {guess}"
            findings.append(warning(found, "see whether an older plugin is still installed, and remove it"))
        elif not file.startswith(PREFIX):
            others.append(socket.name or file)
    return joined(findings, f"other plugins: {several(sorted(set(others)))}" if others else "no other plugin")


def _is_wanted(name: str, wanted: tuple[str, ...]) -> bool:
    return any(matches_pattern(each.replace(PROFILE, "*"), name) for each in wanted)


def _guessed(file: str, wanted: tuple[str, ...]) -> str:
    """The resource after which a socket seems to be named: ``nvidia-gpu.sock``, ``amd.com_gpu``; empty for none."""
    words = re.split(r"[^a-z0-9]+", file.removesuffix(".sock").lower())
    for resource in wanted:
        domain, _, name = resource.replace(PROFILE, "").lower().rstrip("-.").partition("/")
        short = [domain.partition(".")[0], *re.split(r"[^a-z0-9]+", name)]
        long = [*domain.split("."), *re.split(r"[^a-z0-9]+", name)]
        if words[: len(short)] == short or words[: len(long)] == long:
            return resource
    return ""


def read_sockets(folders: Iterable[Path]) -> tuple[PluginSocket, ...]:
    """Every plugin's socket in the folders."""
    paths = [
        path
        for folder in dict.fromkeys(folders)
        for path in _listed(folder)
        if path.name != KUBELET_SOCKET and not path.name.startswith(".") and is_socket(path)
    ]
    answered = [path for path in paths if is_answered(path)]
    infos = _ask(answered)
    return tuple(
        PluginSocket(path, path in answered, *((infos[path].type, infos[path].name) if path in infos else ()))
        for path in paths
    )


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []  # The checks of the folder itself say so.


def _ask(paths: list[Path]) -> dict[Path, api_pb2.PluginInfo]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with ExitStack() as stack:
        calls = []
        for path in paths:
            channel = stack.enter_context(grpc.insecure_channel(f"unix:{path}", options=options))
            stub = api_pb2_grpc.RegistrationStub(channel)
            calls.append((path, stub.GetInfo.future(api_pb2.InfoRequest(), timeout=TIMEOUT)))
        infos = {}
        for path, call in calls:
            try:
                infos[path] = call.result()
            except grpc.RpcError:
                continue  # Not in the watcher's protocol, which is what the reader sees.
    return infos


def _foreign(view: NodeView) -> Finding:
    kubelet, agent = view.settings.kubelet, view.agent()
    own = frozenset(Path(item.socket) for item in agent.status.resources) if agent.status is not None else frozenset()
    wanted = tuple(rule.resource for rule in view.settings.rules)
    if agent.status is not None:
        wanted += tuple(item.name for item in agent.status.resources)
    sockets = read_sockets((kubelet.registry_dir, kubelet.device_plugin_dir))
    if agent.status is None:
        # Whose they are cannot be told then; what is named like ours counts as ours.
        own = frozenset(socket.path for socket in sockets if socket.path.name.startswith(PREFIX) and socket.answered)
    serves = agent.status is not None and agent.status.HasField("dra")
    driver = view.settings.dra.driver_name if serves else ""
    return judge(sockets, own, tuple(dict.fromkeys(wanted)), kubelet.registry_dir, driver)


FOREIGN = Check(
    "foreign-plugins",
    "No other plugin serves our resources: every socket beside ours is asked for its name (GetInfo)",
    "Remove the other plugin, or give ours another resource name",
    _foreign,
)
