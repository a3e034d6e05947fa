"""Rules of a DRA driver's registration: its GetInfo, and that it serves the services that it lists."""

from __future__ import annotations

import grpc

from sandbox.conformance.driver_client import HEALTH_SERVICES
from sandbox.conformance.driver_testbed import DriverTestbed, JudgedDriver
from sandbox.conformance.life import has_registered
from sandbox.conformance.observed import ObservedRegistration
from sandbox.conformance.plugin_client import JudgedCallFailed
from sandbox.conformance.rule import RuleBroken, RuleNotApplicable
from sandbox.kubelet.dra.instance import KNOWN
from scheduling.api.labels import subdomain_faults

LONGEST_NAME = 63


def registration_of(driver: JudgedDriver) -> ObservedRegistration:
    """How the driver registered; raises ``RuleNotApplicable`` where only its socket is known."""
    if driver.registration is None:
        raise RuleNotApplicable("no registration was seen; give the command, not a socket")
    return driver.registration


async def registers(bed: DriverTestbed) -> str | None:
    """Check that the kubelet finds the driver in plugins_registry and can register it."""
    await has_registered(bed)
    driver = await bed.driver()
    if not await driver.client.ready(bed.pace.call):
        raise RuleBroken(f"{driver.name}: nobody answers at its endpoint {registration_of(driver).endpoint!r}")
    return f"{driver.name}, {', '.join(registration_of(driver).versions)}"


async def driver_name(bed: DriverTestbed) -> str | None:
    """Check the driver's name, which is part of objects' fields, of folders and of metrics' labels."""
    name = registration_of(await bed.driver()).resource
    faults = [] if not name else subdomain_faults(name)
    if not name or faults or len(name) > LONGEST_NAME:
        raise RuleBroken(
            f"GetInfo.name is {name!r}; it must be a DNS subdomain of at most {LONGEST_NAME} characters, such as "
            "gpu.example.com"
        )
    return None


async def endpoint(bed: DriverTestbed) -> str | None:
    """Check that the endpoint is an absolute path: a kubelet dials it as it stands."""
    registration = registration_of(await bed.driver())
    said = registration.endpoint
    if said and not said.startswith("/"):
        raise RuleBroken(
            f"GetInfo.endpoint is {said!r}; it must be the socket's absolute path, without a scheme such as unix://"
        )
    return None


async def services(bed: DriverTestbed) -> str | None:
    """Check the list of services: a kubelet takes the first that it knows, and refuses a driver without any."""
    listed = registration_of(await bed.driver()).versions
    known = [service for service in listed if service in KNOWN]
    if not known:
        raise RuleBroken(
            f"GetInfo.supported_versions is {list(listed)}; it must name services: one of {', '.join(KNOWN)}"
        )
    if known != [service for service in KNOWN if service in known]:
        raise RuleBroken(f"GetInfo.supported_versions is {list(listed)}; the newest version must come first")
    return None


async def serves_what_it_lists(bed: DriverTestbed) -> str | None:
    """Check that the driver serves what it lists: a kubelet calls that, and tries health streams again for ever."""
    driver = await bed.driver()
    listed = registration_of(driver).versions
    for service in listed:
        try:
            if service in KNOWN:
                await driver.client.prepare((), service)
                await driver.client.unprepare((), service)
            elif service in HEALTH_SERVICES:
                await driver.client.first_report(service, bed.pace.call)
        except JudgedCallFailed as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                raise RuleBroken(f"it lists {service}, but {error.method} is not implemented") from error
            if service in KNOWN:
                raise RuleBroken(f"{service}, for no claims: {error}") from error
    return None


async def registry_calls(bed: DriverTestbed) -> str | None:
    """Check the driver's answers to the calls of the plugin watcher."""
    registration = registration_of(await bed.driver())
    if registration.type != "DRAPlugin":
        raise RuleBroken(f"GetInfo.type is {registration.type!r}; it must be 'DRAPlugin'")
    if registration.notify_problem:
        raise RuleBroken(f"{registration.notify_problem}; kubelets from 1.36 on deregister such a driver again")
    return None
