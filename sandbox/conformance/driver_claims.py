"""Rules of NodePrepareResources and NodeUnprepareResources, and of the CDI files that come and go with them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path

from protos.dra.v1 import api_pb2
from sandbox.conformance.cdi import cdi_file_fault, cdi_name_fault
from sandbox.conformance.driver_client import Prepared
from sandbox.conformance.driver_testbed import REQUEST, DriverTestbed, JudgedClaim
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable
from sandbox.injection import InjectionError, inject

HELD_SECONDS = 3.0
"""For a claim whose device another claim has: a driver may wait for it, and a kubelet asks again."""
NO_DEVICE = "conformance-no-such-device"
Answer = api_pb2.NodePrepareResourceResponse


async def prepare(bed: DriverTestbed, claims: Sequence[JudgedClaim]) -> Prepared:
    """Prepare claims in one call; raises ``RuleBroken`` if the call fails."""
    driver = await bed.driver()
    try:
        return await driver.client.prepare([claim.message for claim in claims])
    except JudgedCallFailed as error:
        raise RuleBroken(f"{_named(claims)}: {error}") from error


async def prepared(bed: DriverTestbed, claim: JudgedClaim) -> Answer:
    """Prepare a claim that another rule judges; raises ``RuleNotApplicable`` if that fails."""
    driver = await bed.driver()
    try:
        answer = (await driver.client.prepare([claim.message])).get(claim.uid)
    except JudgedCallFailed as error:
        raise RuleNotApplicable(f"it does not prepare a claim: {error}; the rule prepares judges that") from error
    if answer is None or answer.error:
        problem = "no entry for it" if answer is None else answer.error
        raise RuleNotApplicable(f"it does not prepare a claim: {problem}; the rule prepares judges that")
    return answer


async def unprepare(bed: DriverTestbed, claim: JudgedClaim, when: str) -> None:
    """Unprepare a claim; raises ``RuleBroken``, which says ``when`` that was, unless the driver succeeds."""
    driver = await bed.driver()
    try:
        answer = (await driver.client.unprepare([claim.message])).get(claim.uid)
    except JudgedCallFailed as error:
        raise RuleBroken(f"{when}: {error}") from error
    if answer is None:
        raise RuleBroken(f"{when}: NodeUnprepareResources has no entry for the claim's UID")
    if answer.error:
        raise RuleBroken(f"{when}: {answer.error}")


def shape(answer: Answer) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...], str]]:
    """The devices of an answer, in an order of their own: a kubelet does not look at theirs."""
    return sorted(
        (each.pool_name, each.device_name, tuple(sorted(each.request_names)), tuple(each.cdi_device_ids), each.share_id)
        for each in answer.devices
    )


async def prepares(bed: DriverTestbed) -> str | None:
    """Check that the answer has the claim's devices, by the names of its allocation."""
    async with bed.claims() as (claim,):
        answer = (await prepare(bed, [claim])).get(claim.uid)
        if answer is None:
            raise RuleBroken("NodePrepareResources has no entry for the claim's UID")
        if answer.error:
            raise RuleBroken(f"a claim with {_devices(claim)}: {answer.error}")
        found = {(each.pool_name, each.device_name) for each in answer.devices}
        if found != set(claim.devices):
            shown = ", ".join("/".join(each) for each in sorted(found)) or "none"
            raise RuleBroken(f"a claim with {_devices(claim)} is answered with the devices {shown}")
        for each in answer.devices:
            if list(each.request_names) not in ([REQUEST], []):
                raise RuleBroken(
                    f"a device of the request {REQUEST!r} is answered with request_names {list(each.request_names)}"
                )
    return None


async def repeats_prepare(bed: DriverTestbed) -> str | None:
    """Check that a second call is answered as the first: a kubelet repeats it after a failure and its own restart."""
    async with bed.claims() as (claim,):
        first = await prepared(bed, claim)
        again = (await prepare(bed, [claim])).get(claim.uid, Answer(error="no entry for the claim's UID"))
        if again.error:
            raise RuleBroken(f"a second NodePrepareResources for the same claim: {again.error}")
        if shape(again) != shape(first):
            raise RuleBroken(f"a second NodePrepareResources gives {shape(again)}, the first one {shape(first)}")
    return None


async def answers_every_claim(bed: DriverTestbed) -> str | None:
    """Check that both calls answer each claim: a kubelet fails the pod of one without an entry, or with another UID."""
    async with bed.claims(2) as claims:
        driver = await bed.driver()
        messages = [claim.message for claim in claims]
        for method, call in (
            ("NodePrepareResources", driver.client.prepare),
            ("NodeUnprepareResources", driver.client.unprepare),
        ):
            try:
                found = set(await call(messages))
            except JudgedCallFailed as error:
                raise RuleNotApplicable(f"two claims: {error}; the rule prepares judges that") from error
            asked = {claim.uid for claim in claims}
            if found != asked:
                raise RuleBroken(
                    f"{method} for {len(asked)} claims lacks {len(asked - found)} and has {len(found - asked)} others"
                )
    return None


async def judges_each_claim(bed: DriverTestbed) -> str | None:
    """Check that a bad claim gets an error of its own, and the driver prepares the others of the call."""
    async with bed.claims() as (good,):
        try:
            bad = bed.claim(device=NO_DEVICE)
        except RuleNotApplicable:
            raise RuleNotApplicable("it publishes one device; the rule needs two") from None
        try:
            answers = await prepare(bed, [bad, good])
            _check_refused(answers, bad, f"a claim with the device {NO_DEVICE!r}, which does not exist,")
            answer = answers.get(good.uid, Answer(error="no entry for its UID"))
            if answer.error:
                raise RuleBroken(f"a good claim beside a bad one in one call: {answer.error}")
        finally:
            await bed.give_back(bad)
    return None


async def checks_claims(bed: DriverTestbed) -> str | None:
    """Check that the driver refuses claims that are gone, replaced or not allocated: the kubelet may ask late."""
    async with bed.claims() as (claim,):
        other = api_pb2.Claim(namespace=claim.message.namespace, name=claim.message.name, uid=str(uuid.uuid4()))
        none = api_pb2.Claim(namespace=claim.message.namespace, name="conformance-none", uid=str(uuid.uuid4()))
        unallocated = bed.unallocated()
        try:
            for message, what in (
                (other, "a claim that was replaced by another of its name"),
                (none, "a claim that does not exist"),
                (unallocated.message, "a claim that is not allocated"),
            ):
                driver = await bed.driver()
                try:
                    answers = await driver.client.prepare([message])
                except JudgedCallFailed as error:
                    if error.late:
                        raise RuleBroken(f"{what}: {error}") from error
                    continue
                _check_refused(answers, JudgedClaim(message, ()), what)
        finally:
            bed.delete(unallocated)
    return None


async def guards_devices(bed: DriverTestbed) -> str | None:
    """Check that the driver refuses a device that a claim still has: a pod may have been deleted by force."""
    async with bed.claims() as (claim,):
        await prepared(bed, claim)
        twin = bed.claim(like=claim)
        try:
            driver = await bed.driver()
            answers = await driver.client.prepare([twin.message], seconds=min(HELD_SECONDS, bed.pace.call))
            _check_refused(answers, twin, f"a second claim with {_devices(claim)}, which a claim has,")
        except JudgedCallFailed as error:
            return f"it was not prepared: {error}"
        finally:
            await bed.give_back(twin)
    return None


async def prepares_in_parallel(bed: DriverTestbed) -> str | None:
    """Check that the driver prepares two claims at once: pods start side by side."""
    async with bed.claims(2) as claims:
        answers = await asyncio.gather(*(prepare(bed, [claim]) for claim in claims), return_exceptions=True)
        for claim, found in zip(claims, answers, strict=True):
            if isinstance(found, BaseException):
                raise found
            answer = found.get(claim.uid, Answer(error="no entry for its UID"))
            if answer.error:
                raise RuleBroken(f"two claims in two calls at once: {answer.error}")
    return None


async def unprepares_unknown(bed: DriverTestbed) -> str | None:
    """Check that the driver unprepares a claim that it does not know: the pod does not end before it succeeds."""
    name = "conformance-unknown"
    message = api_pb2.Claim(namespace="default", name=name, uid=str(uuid.uuid4()))
    await unprepare(bed, JudgedClaim(message, ()), "a claim that was never prepared")
    return None


async def repeats_unprepare(bed: DriverTestbed) -> str | None:
    """Check that the driver unprepares a claim twice: the answer of the first call may be lost."""
    async with bed.claims() as (claim,):
        await prepared(bed, claim)
        await unprepare(bed, claim, "a prepared claim")
        await unprepare(bed, claim, "a second NodeUnprepareResources for the same claim")
    return None


async def unprepares_deleted(bed: DriverTestbed) -> str | None:
    """Check that the driver unprepares a claim from its own record: the API server may no longer have it."""
    async with bed.claims() as (claim,):
        await prepared(bed, claim)
        bed.delete(claim)
        await unprepare(bed, claim, "a claim that is gone at the API server")
    return None


async def restarts_between(bed: DriverTestbed) -> str | None:
    """Check that the driver knows its claims after a restart: it is updated while pods run."""
    async with bed.claims() as (claim,):
        first = await prepared(bed, claim)
        missing = await bed.restart()
        if missing:
            raise RuleBroken(f"restarted with a prepared claim: {missing}")
        await _check_again(bed, claim, first, "after a restart of the driver")
        await unprepare(bed, claim, "a claim that was prepared before a restart of the driver")
    return None


async def killed_between(bed: DriverTestbed) -> str | None:
    """Check that the driver knows its claims after SIGKILL, which gives it no time to write anything."""
    async with bed.claims() as (claim,):
        before = set(bed.cdi_files())
        await prepared(bed, claim)
        made = set(bed.cdi_files()) - before
        missing = await bed.restart(killed=True)
        if missing:
            raise RuleBroken(f"killed and started with a prepared claim: {missing}")
        await unprepare(bed, claim, "a claim that was prepared before the driver was killed")
        left = sorted(made & set(bed.cdi_files()))
        if left and not await _removes_files(bed):
            raise RuleNotApplicable("it never removes CDI files; the rule removes-cdi-files judges that")
        if left:
            raise RuleBroken(
                f"a claim that was prepared before the driver was killed: {_files(left)} is there after its release"
            )
    return None


async def cdi_files(bed: DriverTestbed) -> str | None:
    """Check the CDI files: a runtime reads every file, and starts no container with a name that it cannot resolve."""
    async with bed.claims() as (claim,):
        answer = await prepared(bed, claim)
        names = [name for each in answer.devices for name in each.cdi_device_ids]
        if not names:
            raise RuleNotApplicable("it prepares claims without CDI devices")
        for fault in filter(None, map(cdi_name_fault, names)):
            raise RuleBroken(fault)
        for path, data in bed.cdi_files().items():
            fault = cdi_file_fault(path, data)
            if fault:
                raise RuleBroken(f"the CDI file {path.name} {fault}")
        try:
            inject(names, bed.cdi)
        except InjectionError as error:
            raise RuleBroken(f"a container with the claim cannot be made: {error}") from error
    return None


async def removes_cdi_files(bed: DriverTestbed) -> str | None:
    """Check that the CDI files of released claims are gone: runtimes read every file at each start of a container."""
    async with bed.claims() as (claim,):
        before = bed.cdi_files()
        await prepared(bed, claim)
        during = bed.cdi_files()
        if during == before:
            raise RuleNotApplicable("it writes no CDI file for a claim")
        await unprepare(bed, claim, "a prepared claim")
        left = [path for path in bed.cdi_files() if path not in before and path in during]
        if left:
            raise RuleBroken(f"after NodeUnprepareResources {_files(left)} of the claim is still there")
    return None


async def _removes_files(bed: DriverTestbed) -> bool:
    """Whether the driver removes CDI files at an ordinary release."""
    async with bed.claims() as (claim,):
        before = set(bed.cdi_files())
        await prepared(bed, claim)
        made = set(bed.cdi_files()) - before
        await unprepare(bed, claim, "a prepared claim")
        return not made & set(bed.cdi_files())


async def _check_again(bed: DriverTestbed, claim: JudgedClaim, first: Answer, when: str) -> None:
    answer = (await prepare(bed, [claim])).get(claim.uid, Answer(error="no entry for the claim's UID"))
    if answer.error:
        raise RuleBroken(f"{when}, the claim cannot be prepared again: {answer.error}")
    if shape(answer) != shape(first):
        raise RuleBroken(f"{when}, NodePrepareResources gives {shape(answer)}, before {shape(first)}")


def _check_refused(answers: Prepared, claim: JudgedClaim, what: str) -> None:
    answer = answers.get(claim.uid)
    if answer is None:
        raise RuleBroken(f"{what} has no entry in the answer; its error must be there")
    if not answer.error:
        raise RuleBroken(f"{what} is prepared; it must be refused")


def _named(claims: Sequence[JudgedClaim]) -> str:
    return f"{len(claims)} claims in one call" if len(claims) > 1 else "a claim"


def _devices(claim: JudgedClaim) -> str:
    return f"the device {' and '.join('/'.join(each) for each in claim.devices)}"


def _files(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)
