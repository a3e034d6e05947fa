"""Which test proves which theme of Kubernetes' own tests of the device manager and plugin manager.

Names of Go tests stand as they are; what has no name there has its theme in words. Tests without a file are in the file
of the heading.

test_manager.py
  TestNewManagerImpl                                        test_new_manager_impl
  TestNewManagerImplStart                                   test_new_manager_impl_start
  TestNewManagerImplStartProbeMode                          test_new_manager_impl_start
  TestDevicePluginReRegistration                            test_device_plugin_re_registration
  TestDevicePluginReRegistrationProbeMode                   test_device_plugin_re_registration
  TestUpdateCapacityAllocatable                             test_update_capacity_allocatable
  TestGetAllocatableDevicesMultipleResources                test_get_allocatable_devices_multiple_resources
  TestGetAllocatableDevicesHealthTransition                 test_get_allocatable_devices_health_transition
  TestCheckpoint                                            test_checkpoint
  TestUpdatePluginResources                                 test_update_plugin_resources
  TestResetExtendedResource                                 test_reset_extended_resource
  TestUpdateAllocatedResourcesStatus                        test_update_allocated_resources_status
  TestFeatureGateResourceHealthStatus                       test_feature_gate_resource_health_status
  TestEndpointSyncOnDisconnect                              test_endpoint_sync_on_disconnect

test_allocation.py
  TestPodContainerDeviceAllocation                          test_pod_container_device_allocation
  TestPodContainerDeviceToAllocate                          test_pod_container_device_to_allocate
  TestDevicesToAllocateConflictWithUpdateAllocatedDevices   \
test_devices_to_allocate_conflict_with_update_allocated_devices
  TestGetDeviceRunContainerOptions                          test_get_device_run_container_options
  TestInitContainerDeviceAllocation                         test_init_container_device_allocation
  TestRestartableInitContainerDeviceAllocation              test_restartable_init_container_device_allocation
  TestDevicePreStartContainer                               test_device_pre_start_container
  TestFilterByAffinity                                      test_filter_by_affinity
  TestGetTopologyHintsWithUpdates                           test_get_topology_hints_with_updates
  TestAdmitPodWithDRAResources                              test_admit_pod_with_dra_resources

test_connections.py
  TestPluginConnected_SameResourceSameSocketRejected        test_plugin_connected_same_resource_same_socket_rejected
  TestPluginConnected_DifferentSocketsCoexist               test_plugin_connected_different_sockets_coexist
  TestPluginDisconnected_WrongSocketIsNoop                  test_plugin_disconnected_wrong_socket_is_noop
  TestPluginDisconnected_PromotesSurvivor                   test_plugin_disconnected_promotes_survivor
  TestPluginDisconnected_LastEndpointMarksUnhealthy         test_plugin_disconnected_last_endpoint_marks_unhealthy
  TestSameSocketRace_LateDisconnect                         test_same_socket_race_late_disconnect
  TestSameSocketRace_DisconnectBeforeReconnect              test_same_socket_race_disconnect_before_reconnect
  TestSameSocketRace_FastTakeoverInfiniteRetries            test_same_socket_race_fast_takeover_infinite_retries

test_records_and_endpoints.py
  TestNewEndpoint                                           test_new_endpoint
  TestRun                                                   test_run
  TestAllocate                                              test_allocate
  TestGetPreferredAllocation                                test_get_preferred_allocation
  TestGetContainerDevices                                   test_get_container_devices
  TestResourceDeviceInstanceFilter                          test_resource_device_instance_filter
  TestDeviceRunContainerOptions                             test_device_run_container_options
  TestGetPodAndContainerForDevice                           test_get_pod_and_container_for_device
  handler: duplicate registration                           test_handler_duplicate_registration
  handler: connect-failure cleanup                          test_handler_connect_failure_cleanup
  handler: coexist                                          test_handler_coexist
  handler: deregister wrong socket no-op                    test_handler_deregister_wrong_socket_no_op
  handler: reconnect after clean disconnect                 test_handler_reconnect_after_clean_disconnect
  TestServeWithRetry                                        test_serve_with_retry

test_topology.py
  hints: no alignment                                       test_get_topology_hints
  hints: only Dev2 on node 1                                test_get_topology_hints
  hints: only Dev2 on node 1, before 1.36                   test_get_topology_hints_before_1_36
  hints: one per node                                       test_get_topology_hints
  hints: two per node                                       test_get_topology_hints
  hints: taken by another container                         test_get_topology_hints
  hints: two resource types mixed                           test_get_topology_hints_two_resource_types_mixed
  hints: more requested than exist                          test_get_topology_hints
  hints: all, fewer or more allocated already               test_get_topology_hints
  pod scope                                                 test_get_pod_topology_hints
  pod request computation                                   test_pod_request_computation
  aligned allocation                                        test_topology_aligned_allocation
  aligned allocation with a preferred list                  test_topology_aligned_allocation_with_a_preference
  preferred-allocation parameters                           test_get_preferred_allocation_parameters

test_plugin_manager.py
  manager TestPluginRegistration                            test_manager_plugin_registration
  watcher TestPluginRegistration                            test_watcher_plugin_registration
  watcher SameName                                          test_watcher_plugin_registration_same_name
  watcher ReRegistration                                    test_watcher_plugin_re_registration
  watcher AtKubeletStart                                    test_watcher_plugin_registration_at_kubelet_start
  reconciler DoNothing                                      test_reconciler_do_nothing
  reconciler Register                                       test_reconciler_register
  reconciler RegisterThenUnregister                         test_reconciler_register_then_unregister
  reconciler ReRegister                                     test_reconciler_re_register
  operation executor            test_operations_of_one_socket_never_overlap_and_those_of_others_do
  operation generator: back-off                             test_back_off_of_a_socket_follows_the_injected_clock
  GetInfo slower than 1 s       ../test_watcher.py::test_slow_get_info_fails_after_a_second_and_is_tried_again
  wrong type                                                ../test_watcher.py::test_unknown_type_is_refused
  bad version                                               ../test_watcher.py::test_unknown_version_is_refused
  bad name                                                  ../test_watcher.py::test_bad_name_is_refused
  relative endpoint                                         test_relative_endpoint_is_dialled_as_it_stands_and_fails
  endpoint on another socket                  ../test_watcher.py::test_plugin_can_serve_elsewhere_than_it_registers
  Notify slower than 5 s                                    test_notify_slower_than_its_time
  Notify answered with an error, 1.36   \
../test_watcher.py::test_error_answer_to_the_notification_undoes_the_registration
  Notify answered with an error, before \
../test_watcher.py::test_until_1_35_an_error_answer_to_the_notification_is_only_logged
  dot-file and regular file ignored           ../test_watcher.py::test_hidden_names_and_other_files_are_not_looked_at
  rename-into-place             ../test_watcher.py::test_socket_renamed_over_the_old_one_forces_a_new_registration
  RegisterPlugin failure, 1.36                              ../test_watcher.py::test_failed_registration_is_tried_again
  RegisterPlugin failure, before              \
../test_watcher.py::test_until_1_35_a_failed_registration_is_not_tried_again
  kubelet restart re-registers  ../test_watcher.py::test_restart_registers_a_live_socket_again_without_its_doing
  removal behind failures                                   test_removal_waits_behind_failed_registrations

test_lifecycle.py
  plugin restart keeps assignments              test_plugin_restart_keeps_assignments_of_running_pods
  kubelet restart keeps assignments             test_kubelet_restart_keeps_assignments_of_running_pods
  reboot with a late plugin                                 test_reboot_with_a_late_plugin_rejects_the_pod
  plugin gone 5 min    ../test_restart.py::test_resource_is_forgotten_after_more_than_five_minutes
  device unhealthy              test_unhealthy_device_keeps_the_pod_running_and_shows_in_its_status
  two plugins, slow second      test_slow_second_plugin_for_one_resource_takes_over_without_a_gap
  init, sidecar and app mixes   test_init_sidecar_and_app_containers_share_only_what_an_init_container_had
  CDI injection                                             test_cdi_injection
  list over 4 MiB                                           test_list_over_4_mib_ends_the_stream_for_good
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
THEMES = {
    "test_manager.py": 14,
    "test_allocation.py": 10,
    "test_connections.py": 8,
    "test_records_and_endpoints.py": 14,
    "test_topology.py": 14,
    "test_plugin_manager.py": 26,
    "test_lifecycle.py": 9,
}
"""How many themes each file's list has."""


def _table() -> dict[str, dict[str, str]]:
    """File -> theme -> test as ``file::name``."""
    table: dict[str, dict[str, str]] = {}
    file = ""
    for line in (__doc__ or "").splitlines():
        if re.fullmatch(r"test_\w+\.py", line):
            file = line
            table[file] = {}
        elif line.startswith("  "):
            theme, test = line.strip().rsplit(maxsplit=1)
            assert theme.strip() not in table[file], theme
            table[file][theme.strip()] = test if "::" in test else f"{file}::{test}"
    return table


def _tests(file: str) -> set[str]:
    tree = ast.parse((FOLDER / file).read_text())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {name for name in functions if name.startswith("test_")}


def test_no_theme_is_without_a_test() -> None:
    table = _table()
    assert {file: len(themes) for file, themes in table.items()} == THEMES
    named = [test.split("::") for themes in table.values() for test in themes.values()]
    assert [f"{file}::{name}" for file, name in named if name not in _tests(file)] == []


def test_a_go_test_has_its_name_here() -> None:
    for themes in _table().values():
        for theme, test in themes.items():
            if theme.startswith("Test"):
                name = test.split("::")[1].replace("_", "")
                assert theme.replace("_", "").lower().removesuffix("probemode") == name, theme
