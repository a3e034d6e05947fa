"""Every rule of DRA drivers, in the order in which they are judged: what ends or restarts the driver comes last."""

from __future__ import annotations

from typing import Final

from sandbox.conformance import driver_claims as claims
from sandbox.conformance import driver_life, life, sources
from sandbox.conformance import driver_registration as registration
from sandbox.conformance import driver_slices as slices
from sandbox.conformance.driver_testbed import DriverTestbed
from sandbox.conformance.rule import ConformanceRule

DriverRule = ConformanceRule[DriverTestbed]

DRIVER_RULES: Final[tuple[DriverRule, ...]] = (
    DriverRule(
        "registers",
        "Registers with the kubelet and serves its endpoint",
        sources.DRA_LIBRARY,
        registration.registers,
        prepared=False,
    ),
    DriverRule("driver-name", "Has a name that objects can hold", sources.SLICE_API, registration.driver_name),
    DriverRule("endpoint", "Names its socket so that the kubelet finds it", sources.WATCHER_API, registration.endpoint),
    DriverRule("services", "Lists its services by name, the newest first", sources.DRA_MANAGER, registration.services),
    DriverRule(
        "serves-what-it-lists",
        "Serves every service that it lists",
        sources.DRA_MANAGER,
        registration.serves_what_it_lists,
    ),
    DriverRule(
        "registry-calls",
        "Answers GetInfo and NotifyRegistrationStatus",
        sources.WATCHER_API,
        registration.registry_calls,
    ),
    DriverRule("publishes", "Publishes complete pools of its devices", sources.DRA_KEP, slices.publishes),
    DriverRule("unique-devices", "Gives each device of a pool its own name", sources.SLICE_API, slices.unique_devices),
    DriverRule("owned-by-node", "Has its slices owned by the Node", sources.DRA_LIBRARY, slices.owned_by_node),
    DriverRule("prepares", "Prepares a claim's devices", sources.DRA_API, claims.prepares),
    DriverRule("repeats-prepare", "Answers a repeated Prepare as the first", sources.DRA_API, claims.repeats_prepare),
    DriverRule("answers-every-claim", "Has an entry for each claim", sources.DRA_MANAGER, claims.answers_every_claim),
    DriverRule("judges-each-claim", "Fails one claim and not the call", sources.DRA_API, claims.judges_each_claim),
    DriverRule(
        "checks-claims", "Refuses claims that are not allocated to it", sources.DRA_LIBRARY, claims.checks_claims
    ),
    DriverRule("guards-devices", "Refuses a device that another claim has", sources.DOUBLE_USE, claims.guards_devices),
    DriverRule(
        "prepares-in-parallel", "Prepares claims side by side", sources.DRA_MANAGER, claims.prepares_in_parallel
    ),
    DriverRule(
        "unprepares-unknown", "Unprepares unknown claims without an error", sources.DRA_API, claims.unprepares_unknown
    ),
    DriverRule("repeats-unprepare", "Unprepares a claim twice", sources.DRA_API, claims.repeats_unprepare),
    DriverRule(
        "unprepares-deleted",
        "Unprepares a claim that the API server has no more",
        sources.DRA_LIBRARY,
        claims.unprepares_deleted,
    ),
    DriverRule("cdi-files", "Writes CDI files that runtimes can use", sources.CDI_SPEC, claims.cdi_files),
    DriverRule("removes-cdi-files", "Removes a claim's CDI files", sources.CDI_SPEC, claims.removes_cdi_files),
    DriverRule(
        "health-reports", "Begins each health stream with all devices", sources.HEALTH_KEP, driver_life.health_reports
    ),
    DriverRule("does-not-grow", "Does not grow with claims", sources.DRA_KEP, driver_life.does_not_grow),
    DriverRule("restores-slices", "Publishes deleted slices again", sources.DRA_MANAGER, slices.restores),
    DriverRule(
        "registry-after-kubelet",
        "Is still in plugins_registry for a new kubelet",
        sources.PLUGIN_MANAGER,
        driver_life.registers_after_kubelet,
    ),
    DriverRule(
        "restarts-between", "Releases a claim after its own restart", sources.DRA_LIBRARY, claims.restarts_between
    ),
    DriverRule("killed-between", "Releases a claim after it was killed", sources.DRA_LIBRARY, claims.killed_between),
    DriverRule(
        "starts-before-kubelet", "Waits for a kubelet that starts later", sources.DRA_DOCS, life.starts_before_kubelet
    ),
    DriverRule("ends-in-grace", "Ends within its grace period", sources.POD_TERMINATION, life.ends_in_grace),
    DriverRule("removes-sockets", "Removes its sockets at its end", sources.PLUGIN_MANAGER, life.removes_sockets),
    DriverRule("keeps-slices", "Leaves its slices at its end", sources.DRA_LIBRARY, slices.keeps_at_end),
)
