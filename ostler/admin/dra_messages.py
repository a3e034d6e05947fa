"""The second door's values as messages; loaded only when somebody asks."""

from __future__ import annotations

from ostler.admin.dra import ClaimView, PoolView, SlicesView
from protos.agent.v1alpha1 import agent_pb2


def slices_message(view: SlicesView) -> agent_pb2.ListSlicesResponse:
    """What is published."""
    return agent_pb2.ListSlicesResponse(
        driver=view.driver,
        pools=[_pool_message(pool) for pool in view.pools],
        generation=view.generation,
        created=view.created,
        updated=view.updated,
        deleted=view.deleted,
    )


def _pool_message(pool: PoolView) -> agent_pb2.Pool:
    return agent_pb2.Pool(
        name=pool.name,
        slices=pool.slices,
        devices=[
            agent_pb2.PoolDevice(
                name=device.name, state=device.state.value, slice=device.slice, taints=device.taints, why=device.why
            )
            for device in pool.devices
        ],
        in_order=pool.in_order,
        dropped=pool.dropped,
        problem=pool.problem,
    )


def claims_message(claims: tuple[ClaimView, ...]) -> agent_pb2.ListClaimsResponse:
    """What is prepared."""
    return agent_pb2.ListClaimsResponse(claims=[_claim_message(claim) for claim in claims])


def _claim_message(claim: ClaimView) -> agent_pb2.Claim:
    return agent_pb2.Claim(
        namespace=claim.namespace,
        name=claim.name,
        uid=claim.uid,
        state=claim.state.value,
        since=claim.since,
        pods=claim.pods,
        devices=[
            agent_pb2.ClaimDevice(
                requests=device.requests,
                pool=device.pool,
                device=device.device,
                cdi_devices=device.cdi_devices,
                share_id=device.share_id,
            )
            for device in claim.devices
        ],
        stuck=claim.stuck,
    )
