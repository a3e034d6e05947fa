"""Every rule of device plugins, in the order in which they are judged: what ends or restarts the plugin comes last."""

from __future__ import annotations

from typing import Final

from sandbox.conformance import life, plugin_life, sources
from sandbox.conformance import plugin_allocation as allocation
from sandbox.conformance import plugin_lists as lists
from sandbox.conformance import plugin_registration as registration
from sandbox.conformance.plugin_testbed import PluginTestbed
from sandbox.conformance.rule import ConformanceRule

PluginRule = ConformanceRule[PluginTestbed]

PLUGIN_RULES: Final[tuple[PluginRule, ...]] = (
    PluginRule(
        "registers",
        "Registers with the kubelet and sends a list",
        sources.PLUGIN_REGISTRATION,
        registration.registers,
        prepared=False,
    ),
    PluginRule(
        "resource-name",
        "Names its resource as Kubernetes allows",
        sources.PLUGIN_REGISTRATION,
        registration.resource_name,
    ),
    PluginRule("api-version", "Offers API version v1beta1", sources.PLUGIN_API, registration.api_version),
    PluginRule(
        "endpoint", "Names its socket so that the kubelet finds it", sources.PLUGIN_REGISTRATION, registration.endpoint
    ),
    PluginRule(
        "own-socket", "Serves each resource on a socket of its own", sources.PLUGIN_API, registration.own_socket
    ),
    PluginRule(
        "registry-calls",
        "Answers GetInfo and NotifyRegistrationStatus",
        sources.WATCHER_API,
        registration.registry_calls,
    ),
    PluginRule(
        "options-implemented",
        "Implements the methods that its options announce",
        sources.PLUGIN_IMPLEMENTATION,
        registration.options_implemented,
    ),
    PluginRule(
        "list-stays-open",
        "Sends its list at once and keeps the stream open",
        sources.PLUGIN_IMPLEMENTATION,
        lists.list_stays_open,
    ),
    PluginRule("full-lists", "Lists every device in every message", sources.DEVICE_MANAGER, lists.full_lists),
    PluginRule("device-ids", "Gives each device an id of its own", sources.PLUGIN_API, lists.device_ids),
    PluginRule("device-health", "Says Healthy or Unhealthy", sources.PLUGIN_API, lists.device_health),
    PluginRule("device-numa", "Never sends a negative NUMA node", sources.TOPOLOGY, lists.device_numa),
    PluginRule("list-size", "Keeps a list within 4 MiB", sources.DEVICE_MANAGER, lists.list_size),
    PluginRule("allocates", "Allocates what it lists as healthy", sources.PLUGIN_IMPLEMENTATION, allocation.allocates),
    PluginRule(
        "answers-each-container",
        "Has one answer for each container",
        sources.PLUGIN_API,
        allocation.answers_each_container,
    ),
    PluginRule("keeps-order", "Answers in the order of the request", sources.PLUGIN_API, allocation.keeps_order),
    PluginRule(
        "repeats-allocate",
        "Answers a repeated Allocate as the first",
        sources.DEVICE_MANAGER,
        allocation.repeats_allocate,
    ),
    PluginRule(
        "refuses-unknown", "Refuses ids that it does not have", sources.DEVICE_PLUGIN_KEP, allocation.refuses_unknown
    ),
    PluginRule("empty-requests", "Survives requests for nothing", sources.DEVICE_MANAGER, allocation.empty_requests),
    PluginRule("container-paths", "Gives containers absolute paths", sources.PLUGIN_API, allocation.container_paths),
    PluginRule("cdi-names", "Names CDI devices as CDI allows", sources.CDI_KEP, allocation.cdi_names),
    PluginRule(
        "preferred-legal",
        "Prefers the asked number of available ids, the required ones among them",
        sources.PLUGIN_IMPLEMENTATION,
        allocation.preferred_legal,
    ),
    PluginRule(
        "preferred-odd",
        "Survives GetPreferredAllocation that nothing can fulfil",
        sources.DEVICE_MANAGER,
        allocation.preferred_odd,
    ),
    PluginRule(
        "repeats-pre-start",
        "Answers PreStartContainer at every start",
        sources.PLUGIN_IMPLEMENTATION,
        allocation.repeats_pre_start,
    ),
    PluginRule("serves-load", "Keeps serving at 1,000 devices", sources.DEVICE_MANAGER, plugin_life.serves_load),
    PluginRule(
        "serves-streams",
        "Keeps serving with many streams open",
        sources.DEVICE_MANAGER,
        plugin_life.serves_streams,
    ),
    PluginRule(
        "serves-after-lost-stream",
        "Serves the next stream when one is lost",
        sources.DEVICE_MANAGER,
        plugin_life.serves_after_lost_stream,
    ),
    PluginRule(
        "reports-changes",
        "Sends a new list when a device changes",
        sources.PLUGIN_IMPLEMENTATION,
        lists.reports_changes,
    ),
    PluginRule(
        "registry-after-kubelet",
        "Is still in plugins_registry for a new kubelet",
        sources.PLUGIN_MANAGER,
        plugin_life.registry_after_kubelet,
    ),
    PluginRule(
        "registers-after-lost-stream",
        "Registers again when the kubelet lost it",
        sources.DEVICE_MANAGER,
        plugin_life.registers_after_lost_stream,
    ),
    PluginRule(
        "registers-after-lost-socket",
        "Registers again when its socket was deleted",
        sources.KUBELET_RESTARTS,
        plugin_life.registers_after_lost_socket,
    ),
    PluginRule(
        "does-not-grow", "Does not grow with calls and restarts", sources.DEVICE_PLUGIN_KEP, plugin_life.does_not_grow
    ),
    PluginRule(
        "answers-while-registering",
        "Answers the kubelet while its Register call is pending",
        sources.DEVICE_MANAGER,
        registration.answers_while_registering,
    ),
    PluginRule(
        "options-agree",
        "Announces the same options in Register and GetDevicePluginOptions",
        sources.PLUGIN_API,
        registration.options_agree,
    ),
    PluginRule(
        "registers-after-kubelet",
        "Calls Register again on a new kubelet.sock",
        sources.KUBELET_RESTARTS,
        plugin_life.registers_after_kubelet,
    ),
    PluginRule(
        "starts-before-kubelet",
        "Waits for a kubelet that starts later",
        sources.PLUGIN_DEPLOYMENT,
        life.starts_before_kubelet,
    ),
    PluginRule("keeps-ids", "Keeps its ids over its own restart", sources.DEVICE_MANAGER, plugin_life.keeps_ids),
    PluginRule("ends-in-grace", "Ends within its grace period", sources.POD_TERMINATION, life.ends_in_grace),
    PluginRule("removes-sockets", "Removes its sockets at its end", sources.KUBELET_RESTARTS, life.removes_sockets),
)
