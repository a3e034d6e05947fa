"""What the containers of a pod get when they start: of device plugins, of DRA drivers, and of both by CDI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandbox.injection import inject
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Pod

Json = dict[str, Any]


async def started(kubelet: Kubelet, pod: Pod, cdi: Sequence[Path]) -> dict[str, Json]:
    """Start the containers of an admitted pod: name -> what it gets, in the order of their starts.

    ``cdi``: the folders of CDI specs, in rising priority. Raises ``KubeletError`` and ``InjectionError``.
    """
    return {each.name: await _container(kubelet, pod, each.name, cdi) for each in pod.in_start_order()}


async def _container(kubelet: Kubelet, pod: Pod, name: str, cdi: Sequence[Path]) -> Json:
    found: Json = {}
    held = {resource: list(ids) for resource, ids in kubelet.allocated(pod.uid, name).items()}
    # A kubelet without claims (1.24) has nothing to ask for them.
    has_claims = bool(pod.claims) or pod.extended_claim is not None
    names = list(kubelet.claim_devices(pod, name)) if has_claims else []
    if held:
        options = await kubelet.run_options(pod, name)
        plain = asdict(options) if options is not None else {}
        names += plain.pop("cdi_devices", ())
        found |= {"deviceIDs": held, **{key: value for key, value in plain.items() if value}}
    if names:
        found |= {"cdiDevices": names, "injected": inject(names, cdi)}
        # A variable of a CDI file replaces the device plugin's of that name.
        injected = {entry.partition("=")[0] for entry in found["injected"].get("env", ())}
        found["envs"] = {name: value for name, value in found.get("envs", {}).items() if name not in injected}
    return {key: value for key, value in found.items() if value}
