"""The DRA manager: claims are prepared before a pod's containers start and unprepared after its end.

As in kubelet 1.36: a pass over all claims of a pod first, which changes nothing; then the claims are written down with
the pod; then one call for each driver; the first failure ends the pass, and the next one asks again for everything
that is not prepared. Two pods that share a claim and start together have it prepared twice, and its devices are then
recorded twice; released kubelets do that too, and drivers have to live with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from node.kubelet.dra_state import DeviceState
from protos.dra.v1 import api_pb2
from sandbox.kubelet.dra.claims import CachedClaim, ClaimCache, claim_name, claim_of, pod_claims
from sandbox.kubelet.dra.drivers import Drivers
from sandbox.kubelet.dra.health import HealthCache
from sandbox.kubelet.dra.instance import HealthReport, Instance
from sandbox.kubelet.dra.settings import ApiFailed, DraManagerSettings, Object
from sandbox.kubelet.errors import KubeletError, PluginError
from sandbox.kubelet.events import DriverHealth, EventFeed
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.pod_status import PodUpdates
from sandbox.kubelet.pods import ActivePods, Pod, PodClaim

log = logging.getLogger("ostler.sandbox.kubelet")


class PrepareError(KubeletError):
    """A pod's claims cannot be prepared now; the text is that of the pod's event."""


class UnprepareError(KubeletError):
    """A pod's claims cannot be unprepared now; the pod stays until they can."""


class DraManager:
    """DRA of one start of the kubelet, its state in ``folder``. Raises ``KubeletError`` for a state it cannot read."""

    def __init__(
        self,
        folder: Path,
        settings: DraManagerSettings,
        *,
        generation: Generation,
        pods: ActivePods,
        feed: EventFeed,
    ) -> None:
        self.claims = ClaimCache(folder)
        self.health = HealthCache(folder, settings.now)
        self.updates = PodUpdates()
        self.drivers = Drivers(settings, generation, self, feed)
        self._settings = settings
        self._guarded = generation == "1.37"
        self._pods = pods
        self._feed = feed
        self._reconciler: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Delete the node's slices, and look for pods that are gone until ``close``."""
        self.drivers.wiping.start()
        self._reconciler = asyncio.create_task(self._reconcile(), name="reconcile claims")

    async def close(self) -> None:
        """End everything; can be called again."""
        task, self._reconciler = self._reconciler, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self.drivers.close()

    async def prepare(self, pod: Pod) -> None:
        """Prepare the claims of ``pod``; idempotent. Raises ``PrepareError``."""
        try:
            await self._prepare(pod)
        except KubeletError as error:
            raise PrepareError(f"prepare dynamic resources: {error}") from error

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare the claims that only ``pod`` uses; idempotent. Raises ``UnprepareError``."""
        try:
            names = [name for claim in pod_claims(pod) if (name := claim_name(pod, claim)) is not None]
            await self._unprepare(pod.uid, pod.namespace, names)
        except KubeletError as error:
            raise UnprepareError(f"unprepare dynamic resources: {error}") from error

    def reported(self, driver: str, report: HealthReport) -> None:
        """A health report arrived: note which pods use a device that changed."""
        changed = self.health.report(driver, report)
        pods: set[str] = set()
        for claim in self.claims.all():
            devices = claim.drivers.get(driver, ())
            if any((device.pool, device.device) in changed for device in devices):
                pods |= claim.pods
        self.updates.note(frozenset(pods))
        self._feed.emit(DriverHealth(driver, len(changed)))

    def ended(self, driver: str) -> None:
        """A health stream ended."""
        self.health.forget(driver)
        self._feed.emit(DriverHealth(driver, 0, ended=True))

    async def _prepare(self, pod: Pod) -> None:
        wanted = [await self._wanted(pod, claim) for claim in pod_claims(pod)]
        pending: dict[str, CachedClaim] = {}
        batches: dict[Instance, list[api_pb2.Claim]] = {}
        for each in wanted:
            if each is None:
                continue
            claim, instances = each
            known = self._attach(pod, claim)
            if known.prepared:
                continue
            pending[known.uid] = known
            for driver in known.drivers:
                # A claim that was allocated again under the same UID may name another driver than its record does.
                instance = instances.get(driver) or self.drivers.get(driver)
                batches.setdefault(instance, []).append(_request(known))
        for instance, claims in batches.items():
            await self._prepare_with(instance, claims, pending)
        for claim in pending.values():
            claim.mark_prepared()
        self._write("checkpoint ResourceClaim state")

    async def _wanted(self, pod: Pod, pod_claim: PodClaim) -> tuple[CachedClaim, dict[str, Instance]] | None:
        """A claim of the pod as the API has it, and the drivers to ask, without changing anything."""
        name = claim_name(pod, pod_claim)
        if name is None:
            return None
        if self._settings.api is None:
            raise KubeletError(f"fetch ResourceClaim {name}: the kubelet runs without an API server")
        try:
            obj = await self._settings.api.claim(pod.namespace, name)
        except ApiFailed as error:
            raise KubeletError(f"fetch ResourceClaim {name}: {error}") from error
        _check_belongs(pod, pod_claim, obj)
        claim = claim_of(obj)
        return claim, {driver: self.drivers.get(driver) for driver in claim.drivers}

    def _attach(self, pod: Pod, claim: CachedClaim) -> CachedClaim:
        """Write down that the pod uses the claim, before any driver is asked."""
        known = self.claims.get(claim.namespace, claim.name)
        if known is None:
            known = claim
            self.claims.add(claim)
        elif known.uid != claim.uid:
            raise KubeletError(
                f"old ResourceClaim with same name {claim.name} and different UID {known.uid} still exists "
                "(previous pod force-deleted?!)"
            )
        known.pods.add(pod.uid)
        self._write("checkpoint ResourceClaim cache")
        return known

    async def _prepare_with(
        self, instance: Instance, claims: list[api_pb2.Claim], pending: Mapping[str, CachedClaim]
    ) -> None:
        call = "NodePrepareResources"
        try:
            response = await instance.prepare(claims)
        except PluginError as error:
            raise KubeletError(f"{call}: {error}") from error
        for uid, result in response.claims.items():
            _check_result(call, claims, uid, result.error)
            known = pending[uid]
            if self.claims.get(known.namespace, known.name) is None:
                raise KubeletError(
                    f"internal error: unable to get claim info for ResourceClaim {known.name} "
                    f"in namespace {known.namespace}"
                )
            known.drivers.setdefault(instance.driver, []).extend(_device(device) for device in result.devices)
        _check_complete(call, claims, len(response.claims))

    async def _unprepare(self, pod_uid: str, namespace: str, names: Iterable[str]) -> None:
        ending: list[CachedClaim] = []
        for name in names:
            known = self.claims.get(namespace, name)
            if known is None or (self._guarded and pod_uid not in known.pods):
                continue
            # Kubelets up to 1.36 do not check whose reference is left.
            if len(known.pods) > 1:
                known.pods.discard(pod_uid)
            else:
                ending.append(known)
        batches: dict[str, list[api_pb2.Claim]] = {}
        for known in ending:
            for driver in known.drivers:
                batches.setdefault(driver, []).append(_request(known))
        for driver, claims in batches.items():
            await self._unprepare_with(self.drivers.get(driver), claims)
        for known in ending:
            self.claims.remove(known.namespace, known.name)
        self._write("checkpoint ResourceClaim state")

    async def _unprepare_with(self, instance: Instance, claims: list[api_pb2.Claim]) -> None:
        call = "NodeUnprepareResources"
        try:
            response = await instance.unprepare(claims)
        except PluginError as error:
            raise KubeletError(f"{call}: {error}") from error
        for uid, result in response.claims.items():
            _check_result(call, claims, uid, result.error)
        _check_complete(call, claims, len(response.claims))

    def _write(self, what: str) -> None:
        try:
            self.claims.write()
        except OSError as error:
            raise KubeletError(f"{what}: {error}") from error

    async def _reconcile(self) -> None:
        """Unprepare the claims of pods that are gone, again and again."""
        while True:
            if self._pods.are_all:
                for pod_uid, claims in self.claims.of_pods_but(self._pods.by_uid).items():
                    await self._release(pod_uid, claims)
            await asyncio.sleep(self._settings.reconcile_seconds)

    async def _release(self, pod_uid: str, claims: list[CachedClaim]) -> None:
        try:
            await self._unprepare(pod_uid, claims[0].namespace, [claim.name for claim in claims])
        except KubeletError as error:
            log.info("unpreparing failed, it is tried again", extra={"pod": pod_uid, "error": str(error)})


def _check_belongs(pod: Pod, pod_claim: PodClaim, claim: Object) -> None:
    """Raise ``KubeletError`` unless the pod may use the claim."""
    metadata = claim["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if pod_claim.generated and not any(owner["uid"] == pod.uid and owner.get("controller") for owner in owners):
        raise KubeletError(
            f"ResourceClaim {metadata['namespace']}/{metadata['name']} was not created for Pod "
            f"{pod.namespace}/{pod.name} (Pod is not owner)"
        )
    reserved = claim.get("status", {}).get("reservedFor") or ()
    if not any(consumer["uid"] == pod.uid for consumer in reserved):
        raise KubeletError(
            f"pod {pod.name} ({pod.uid}) is not allowed to use ResourceClaim {metadata['name']} ({metadata['uid']})"
        )


def _check_result(call: str, claims: Iterable[api_pb2.Claim], uid: str, error: str) -> None:
    name = next((claim.name for claim in claims if claim.uid == uid), None)
    if name is None:
        raise KubeletError(f"{call} returned result for unknown claim UID {uid}")
    if error:
        raise KubeletError(f"{call} failed for ResourceClaim {name}: {error}")


def _check_complete(call: str, claims: list[api_pb2.Claim], answered: int) -> None:
    if len(claims) != answered:
        raise KubeletError(f"{call} skipped {len(claims) - answered} ResourceClaims")


def _request(claim: CachedClaim) -> api_pb2.Claim:
    return api_pb2.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)


def _device(device: api_pb2.Device) -> DeviceState:
    return DeviceState(
        pool=device.pool_name,
        device=device.device_name,
        share_id=device.share_id if device.HasField("share_id") else None,
        requests=tuple(device.request_names) or None,
        cdi_devices=tuple(device.cdi_device_ids) or None,
    )
