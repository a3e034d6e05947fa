"""Drives a recorded scenario through the embedded kubelet, real sockets on both sides, and gives what each step shows.

Every ``step_...`` method is one operation of the scenarios and returns what the record has under ``expect``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from node.kubelet.checkpoint import FILE_NAME, decode
from node.kubelet.gojson import KubeletStateError
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.errors import KubeletError, RegistrationError
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pod_devices import RunOptions
from sandbox.kubelet.pods import Container, Pod, PodAdmitResult
from sandbox.kubelet.registration import check_plugin
from sandbox.kubelet.topology import ProviderHints, TopologyHint, TopologyManager
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.scripted_plugin import PluginScript, ScriptedPlugin, device, register
from tests.waiting import eventually

Json = dict[str, Any]


def pod_of(data: Json) -> Pod:
    """The pod of a scenario."""
    containers = tuple(Container(item["name"], item["kind"], item["limits"] or {}) for item in data["containers"] or ())
    backed = frozenset(
        (container, resource)
        for container, resources in (data.get("dra_backed") or {}).items()
        for resource in resources
    )
    return Pod(data["uid"], data["uid"], "default", containers, backed)


def devices_of(items: list[Json] | None) -> list[api_pb2.Device]:
    """The devices of a scenario's list."""
    return [device(item["id"], item["health"], item["topology"]) for item in items or ()]


class Scenario:
    """One scenario on its own kubelet; plugins live beside its folder and register with a relative path."""

    def __init__(self, data: Json, root: Path, *, keep_known_holes: bool) -> None:
        self.data = data
        self.clock = ManualClock(1000.0)
        self.kubelet = Kubelet(
            root / "k",
            clock=self.clock,
            watch_plugins=False,
            keep_known_holes=keep_known_holes,
            topology=TopologyManager(
                "none" if data["policy"] == "fixed" else data["policy"],
                data["scope"],
                options=data.get("policy_options"),
                numa_nodes=data["numa_nodes"],
            ),
        )
        self.pods = {item["uid"]: pod_of(item) for item in data["pods"] or ()}
        self.calls: list[Json] = []
        self._sockets = root / "k" / "p"
        self._sockets.mkdir(parents=True)
        self._specs = {spec["resource"]: spec for spec in data["plugins"] or ()}
        self._scripts = {resource: _script(spec) for resource, spec in self._specs.items()}
        self._current: dict[str, ScriptedPlugin] = {}
        self._replaced: dict[str, ScriptedPlugin] = {}
        self._all: list[ScriptedPlugin] = []

    async def __aenter__(self) -> Scenario:
        await self.kubelet.start()
        for resource, spec in self._specs.items():
            if spec.get("connected_at_start"):
                await self._connect(resource, devices_of(spec["devices"]))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kubelet.stop()
        for plugin in self._all:
            await plugin.stop()

    async def step(self, step: Json) -> Json:
        """Do one step; what it shows in the form of the record."""
        self.calls.clear()
        shown: Json = await getattr(self, f"step_{step['op']}")(step)
        return shown

    async def step_admit(self, step: Json) -> Json:
        pod = self.pods[step["pod"]]
        is_fixed = self.data["policy"] == "fixed"
        affinity = {
            name: TopologyHint(None if hint["nodes"] is None else frozenset(hint["nodes"]), hint["preferred"])
            for name, hint in (step.get("affinity") or {}).items()
        }
        verdict = await self.kubelet.admit(pod, affinity if is_fixed else None)
        shown = {"admit": verdict.admitted, "containers": self._containers(pod, verdict), "rpcs": self._rpcs()}
        if not is_fixed and not verdict.admitted:
            shown.update(reason=verdict.reason, message=verdict.message)
        return shown

    def _containers(self, pod: Pod, verdict: PodAdmitResult) -> list[Json]:
        """What the record has of every container up to the first failure."""
        shown: list[Json] = []
        if verdict.pod_hints is not None:
            shown.append({"pod_hints": _hints(verdict.pod_hints)})
        for container in pod.in_start_order() if verdict.admitted or verdict.container else ():
            element: Json = {"container": container.name}
            shown.append(element)
            if container.name in verdict.hints:
                element["hints"] = _hints(verdict.hints[container.name])
            if container.name in verdict.affinity:
                element["affinity"] = _hint(verdict.affinity[container.name])
                element["devices"] = _plain(self.kubelet.allocated(pod.uid, container.name))
            if container.name == verdict.container:
                if "affinity" in element:
                    element["error"] = verdict.error
                break
        return shown

    async def step_hints(self, step: Json) -> Json:
        return {"hints": _hints(self.kubelet.topology_hints(self.pods[step["pod"]], step["container"]))}

    async def step_pod_hints(self, step: Json) -> Json:
        return {"hints": _hints(self.kubelet.topology_hints(self.pods[step["pod"]]))}

    async def step_terminate(self, step: Json) -> Json:
        self.kubelet.terminate(step["pod"])
        return {}

    async def step_sources_ready(self, step: Json) -> Json:
        self.kubelet.set_sources_ready(ready=step["sources_ready"])
        return {}

    async def step_list_devices(self, step: Json) -> Json:
        resource = step["resource"]
        before = self.kubelet.list_messages[resource]
        await self._current[resource].update(devices_of(step.get("devices")))
        await eventually(lambda: self.kubelet.list_messages[resource] > before, "the new list")
        return {}

    async def step_connect(self, step: Json) -> Json:
        resource = step["resource"]
        old = self._current.get(resource)
        if old is not None:
            self._replaced.setdefault(resource, old)
        spec = step["devices"] if "devices" in step else self._specs[resource]["devices"]
        await self._connect(resource, devices_of(spec))
        return {}

    async def step_connect_failing(self, step: Json) -> Json:
        plugin = await self._start(step["resource"], [], PluginScript(options_error="no options today"))
        return {"error": await self._register(plugin)}

    async def step_disconnect(self, step: Json) -> Json:
        resource = step["resource"]
        before = self.kubelet.open_streams(resource)
        await self._current.pop(resource).stop()
        await eventually(lambda: self.kubelet.open_streams(resource) < before, "the end of the stream")
        return {}

    async def step_behaviour(self, step: Json) -> Json:
        script = self._scripts[step["resource"]]
        if "allocate_answer" in step:
            script.allocate = step["allocate_answer"]["mode"]
        if "preferred_answer" in step:
            script.preferred = step["preferred_answer"]["mode"]
        return {}

    async def step_age(self, step: Json) -> Json:
        self.clock.now += step["seconds"]
        return {}

    async def step_capacity(self, step: Json) -> Json:
        seen = self.kubelet.capacity()
        return {
            "capacity": dict(seen.capacity),
            "allocatable": dict(seen.allocatable),
            "deleted": list(seen.deleted),
        }

    async def step_allocatable_devices(self, step: Json) -> Json:
        return {
            "devices": {
                resource: {
                    item.id: None if item.numa is None else list(item.numa)
                    for item in self.kubelet.devices(resource)
                    if item.healthy
                }
                for resource in self.kubelet.resources()
            }
        }

    async def step_devices_of(self, step: Json) -> Json:
        return {"devices": _plain(self.kubelet.allocated(step["pod"], step["container"]))}

    async def step_run_options(self, step: Json) -> Json:
        try:
            options = await self.kubelet.run_options(self.pods[step["pod"]], step["container"])
        except KubeletError as error:
            return {"error": str(error), "options": None, "rpcs": self._rpcs()}
        return {"options": None if options is None else _shown(options), "rpcs": self._rpcs()}

    async def step_node_allocatable(self, step: Json) -> Json:
        before: Mapping[str, int] = step.get("node_allocatable") or {}
        return {"node_allocatable": self.kubelet.manager.raised_allocatable(step["pod"], before)}

    async def step_should_reset(self, step: Json) -> Json:
        return {"should_reset": self.kubelet.manager.should_reset_capacity()}

    async def step_status(self, step: Json) -> Json:
        status = self.kubelet.manager.allocated_resources_status(self.pods[step["pod"]])
        return {"allocated_resources_status": status}

    async def step_updates(self, step: Json) -> Json:
        return {"updates": [list(pods) for pods in self.kubelet.manager.updates.drain()]}

    async def step_checkpoint(self, step: Json) -> Json:
        text = self._checkpoint.read_bytes()
        try:
            decode(text)
        except KubeletStateError:
            sound = False
        else:
            sound = True
        data = json.loads(text)["Data"]
        entries = [
            {
                "ContainerName": entry["ContainerName"],
                "DeviceIDs": {node: sorted(ids) for node, ids in entry["DeviceIDs"].items()},
                "PodUID": entry.get("PodUID", ""),
                "ResourceName": entry["ResourceName"],
            }
            for entry in data["PodDeviceEntries"] or ()
        ]
        entries.sort(key=str)
        registered = {resource: sorted(ids) for resource, ids in data["RegisteredDevices"].items()}
        return {"PodDeviceEntries": entries, "RegisteredDevices": registered, "checksum_ok": sound, "exists": True}

    async def step_corrupt_checkpoint(self, step: Json) -> Json:
        text = self._checkpoint.read_bytes()
        self._checkpoint.write_bytes(text.replace(b'"PodUID"', b'"PodUIX"', 1))
        return {}

    async def step_remove_checkpoint(self, step: Json) -> Json:
        self._checkpoint.unlink()
        return {}

    async def step_restart(self, step: Json) -> Json:
        await self.kubelet.stop()
        for plugin in self._all:
            await plugin.stop()
        self._current.clear()
        running = {(pod, container) for pod, container in step.get("running") or ()}
        await self.kubelet.start(running=running, sources_ready=step.get("sources_ready", True))
        return {}

    async def step_register_call(self, step: Json) -> Json:
        request = step["request"]
        folder = self.kubelet.settings.device_plugin_dir
        message = await register(folder, request["ResourceName"], request["Endpoint"], version=request["Version"])
        return {"code": "Unknown", "message": message}

    async def step_register_self(self, step: Json) -> Json:
        resource, folder = step["resource"], self.kubelet.settings.device_plugin_dir
        plugin = await self._start(
            resource, devices_of(self._specs[resource]["devices"]), self._scripts[resource], folder / "own1.sock"
        )
        contrary = {
            "pre_start_required": not plugin.script.pre_start_required,
            "get_preferred_allocation_available": not plugin.script.preferred_available,
        }
        endpoint = step["request"]["Endpoint"].replace("NAME", plugin.path.name)
        assert await register(folder, resource, endpoint, options=contrary) == ""
        await eventually(lambda: self.kubelet.list_messages[resource] > 0, "the first list")
        return {}

    async def step_validate_call(self, step: Json) -> Json:
        request = step["request"]
        try:
            check_plugin(request["ResourceName"], request["Version"].split(","))
        except RegistrationError as error:
            return {"error": str(error)}
        return {}

    async def step_plugin_dir(self, step: Json) -> Json:
        return {"names": sorted(path.name for path in self.kubelet.settings.device_plugin_dir.iterdir())}

    @property
    def _checkpoint(self) -> Path:
        return self.kubelet.settings.device_plugin_dir / FILE_NAME

    async def _connect(self, resource: str, devices: list[api_pb2.Device]) -> None:
        plugin = await self._start(resource, devices, self._scripts[resource])
        before = self.kubelet.list_messages[resource]
        assert await self._register(plugin) == ""
        await eventually(lambda: self.kubelet.list_messages[resource] > before, "the first list")
        self._current[resource] = plugin

    async def _start(
        self, resource: str, devices: list[api_pb2.Device], script: PluginScript, path: Path | None = None
    ) -> ScriptedPlugin:
        path = path or self._sockets / f"{len(self._all)}.sock"
        plugin = ScriptedPlugin(resource, path, devices, script, self.calls)
        self._all.append(plugin)
        return await plugin.start()

    async def _register(self, plugin: ScriptedPlugin) -> str:
        folder = self.kubelet.settings.device_plugin_dir
        return await register(folder, plugin.resource, f"../p/{plugin.path.name}")

    def _rpcs(self) -> list[Json]:
        return sorted(self.calls, key=lambda call: str(call["resource"]))


def _script(spec: Json) -> PluginScript:
    return PluginScript(
        pre_start_required=spec["pre_start_required"],
        preferred_available=spec["get_preferred_allocation_available"],
        preferred=spec["preferred_answer"]["mode"],
        preferred_ids=tuple(spec["preferred_answer"].get("ids") or ()),
        allocate=spec["allocate_answer"]["mode"],
        pre_start=spec["pre_start_answer"]["mode"],
    )


def _hint(hint: TopologyHint) -> Json:
    return {"nodes": None if hint.nodes is None else sorted(hint.nodes), "preferred": hint.preferred}


def _hints(offered: ProviderHints) -> Json:
    return {resource: None if hints is None else [_hint(hint) for hint in hints] for resource, hints in offered.items()}


def _plain(held: Mapping[str, Mapping[str, tuple[int, ...] | None]]) -> Json:
    return {
        resource: {name: None if nodes is None else list(nodes) for name, nodes in ids.items()}
        for resource, ids in held.items()
    }


def _shown(options: RunOptions) -> Json:
    return {
        "annotations": dict(options.annotations),
        "cdi_devices": list(options.cdi_devices),
        "devices": [f"{item.host_path}:{item.container_path}:{item.permissions}" for item in options.devices],
        "env_count": len(options.envs),
        "envs": dict(options.envs),
        "mounts": [
            f"{item.host_path}:{item.container_path}:name={item.container_path}"
            f":ro={str(item.read_only).lower()}:relabel=false"
            for item in options.mounts
        ],
    }
