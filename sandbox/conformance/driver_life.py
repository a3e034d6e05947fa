"""Rules of a DRA driver's life: restarts of the kubelet, its own end, its health stream, and growth."""

from __future__ import annotations

from contextlib import AsyncExitStack

import grpc

from sandbox.conformance.driver_claims import prepared, unprepare
from sandbox.conformance.driver_testbed import DriverTestbed
from sandbox.conformance.growth import MOST_ROUNDS, growth, is_judged
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable
from sandbox.kubelet.dra.instance import HealthReport

FIRST_REPORT = 5.0
"""Seconds within which a health stream must begin with a report; kubelets take devices for unknown until then."""
_STREAMS = 4


async def registers_after_kubelet(bed: DriverTestbed) -> str | None:
    """Check that the driver is in plugins_registry for a new kubelet, which registers what it finds there."""
    last = await bed.kubelet.restart()
    missing = await bed.registered_after(last)
    if missing:
        raise RuleBroken(f"after a restart of the kubelet, which looks into plugins_registry: {missing}")
    return bed.own_end


async def health_reports(bed: DriverTestbed) -> str | None:
    """Check that each stream begins with all devices: a kubelet forgets those that the newest report lacks."""
    driver = await bed.driver()
    service = driver.client.health_service
    if service is None:
        raise RuleNotApplicable("it lists no health service")
    specs = await bed.published() if bed.has_program else []
    async with AsyncExitStack() as streams:
        # Several at once: kubelets of an update, and tools.
        for number in range(_STREAMS):
            reports = driver.client.reports(service)
            streams.push_async_callback(reports.aclose)
            try:
                report = await bed.within(FIRST_REPORT, anext(reports))
            except (TimeoutError, StopAsyncIteration, JudgedCallFailed) as error:
                if isinstance(error, JudgedCallFailed) and error.code is grpc.StatusCode.UNIMPLEMENTED:
                    raise RuleNotApplicable(
                        f"{service} is not implemented; serves-what-it-lists judges that"
                    ) from error
                problem = f"no report within {FIRST_REPORT:g} s" if isinstance(error, TimeoutError) else str(error)
                raise RuleBroken(f"{service}, with {number} streams open: {problem or 'it was ended'}") from error
            _check_report(report, {device["name"] for spec in specs for device in spec.get("devices") or ()})
    return None


def _check_report(report: HealthReport, published: set[str]) -> None:
    reported = {each.device.device_name for each in report.devices}
    missing = sorted(published - reported)
    if missing:
        raise RuleBroken(
            f"a health report has {len(reported)} devices and lacks {missing[0]!r} of {len(published)} published ones"
        )
    for each in report.devices:
        if not each.device.pool_name or not each.device.device_name:
            raise RuleBroken("a health report has a device without a pool or a name")
        if each.health not in (0, 1, 2):
            raise RuleBroken(f"the health of device {each.device.device_name!r} is {each.health}; it must be 0, 1 or 2")


async def does_not_grow(bed: DriverTestbed) -> str | None:
    """Check that claims that come and go leave nothing in the driver's process."""
    if bed.program.size() is None:
        raise RuleNotApplicable("the size of its process cannot be read")
    sizes = []
    claims = bed.pace.calls // 50
    for _ in range(MOST_ROUNDS + 1):
        for _ in range(claims):
            async with bed.claims() as (claim,):
                await prepared(bed, claim)
                await unprepare(bed, claim, "a prepared claim")
        size = bed.program.size()
        if size is None:
            raise RuleBroken(f"the driver {bed.program.ended()}")
        sizes.append(size)
        if is_judged(sizes):
            break
    problem = growth(sizes, f"{claims} {'claim' if claims == 1 else 'claims'} that came and went")
    if problem:
        raise RuleBroken(problem)
    return f"{sizes[-1].memory / 1024:.1f} MiB, {sizes[-1].descriptors} descriptors"
