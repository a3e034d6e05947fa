"""The fields of the messages that clients write in protobuf, with their numbers, as Kubernetes 1.37 has them.

A line is a message with its fields: number, name, type. A type is a scalar, a message, or one of those that are text in
JSON (Time, MicroTime, Quantity) or JSON themselves (RawExtension, FieldsV1). In front of it ``*`` is a list, ``%`` a
map with names for keys, and ``~`` a message whose fields stand in the one around it. ``!`` marks scalars that count
with their zero value, too; of all others zero is the same as absent.

Versions of ``resource.k8s.io`` share their messages, but for those of v1beta1 that have other fields.
"""

from __future__ import annotations

from typing import Final

FIELDS: Final = """
AllocatedDeviceStatus: 1 driver string!, 2 pool string!, 3 device string!, 4 conditions *Condition, 5 data
  RawExtension, 6 networkData NetworkDeviceData, 7 shareID string!
AllocationResult: 1 devices DeviceAllocationResult, 3 nodeSelector NodeSelector, 5 allocationTimestamp Time
CELDeviceSelector: 1 expression string!
CapacityRequestPolicy: 1 default Quantity, 3 validValues *Quantity, 4 validRange CapacityRequestPolicyRange
CapacityRequestPolicyRange: 1 min Quantity, 2 max Quantity, 3 step Quantity
CapacityRequirements: 1 requests %Quantity
Condition: 1 type string!, 2 status string!, 3 observedGeneration int, 4 lastTransitionTime Time, 5 reason string!, 6
  message string!
Counter: 1 value Quantity
CounterSet: 1 name string!, 2 counters %Counter
DeleteOptions: 1 gracePeriodSeconds int!, 2 preconditions Preconditions, 3 orphanDependents bool!, 4 propagationPolicy
  string!, 5 dryRun *string, 6 ignoreStoreReadErrorWithClusterBreakingPotential bool!
Device: 1 name string!, 2 attributes %DeviceAttribute, 3 capacity %DeviceCapacity, 4 consumesCounters
  *DeviceCounterConsumption, 5 nodeName string!, 6 nodeSelector NodeSelector, 7 allNodes bool!, 8 taints *DeviceTaint,
  9 bindsToNode bool!, 10 bindingConditions *string, 11 bindingFailureConditions *string, 12 allowMultipleAllocations
  bool!, 14 nodeAllocatableResources %NodeAllocatableResource
DeviceAllocationConfiguration: 1 source string!, 2 requests *string, 3 deviceConfiguration ~DeviceConfiguration
DeviceAllocationResult: 1 results *DeviceRequestAllocationResult, 2 config *DeviceAllocationConfiguration
DeviceAttribute: 2 int int!, 3 bool bool!, 4 string string!, 5 version string!, 6 ints *int, 7 bools *bool, 8 strings
  *string, 9 versions *string
DeviceCapacity: 1 value Quantity, 2 requestPolicy CapacityRequestPolicy
DeviceClaim: 1 requests *DeviceRequest, 2 constraints *DeviceConstraint, 3 config *DeviceClaimConfiguration
DeviceClaimConfiguration: 1 requests *string, 2 deviceConfiguration ~DeviceConfiguration
DeviceClass: 1 metadata ObjectMeta, 2 spec DeviceClassSpec
DeviceClassConfiguration: 1 deviceConfiguration ~DeviceConfiguration
DeviceClassSpec: 1 selectors *DeviceSelector, 2 config *DeviceClassConfiguration, 4 extendedResourceName string!
DeviceConfiguration: 1 opaque OpaqueDeviceConfiguration
DeviceConstraint: 1 requests *string, 2 matchAttribute string!, 3 distinctAttribute string!
DeviceCounterConsumption: 1 counterSet string!, 2 counters %Counter, 3 compatibilityGroups *string
DeviceDerivedAttribute: 1 name string!, 2 expression string!
DeviceRequest: 1 name string!, 2 exactly ExactDeviceRequest, 3 firstAvailable *DeviceSubRequest
DeviceRequestAllocationResult: 1 request string!, 2 driver string!, 3 pool string!, 4 device string!, 5 adminAccess
  bool!, 6 tolerations *DeviceToleration, 7 bindingConditions *string, 8 bindingFailureConditions *string, 9 shareID
  string!, 10 consumedCapacity %Quantity, 11 skipNodeOperations *string
DeviceSelector: 1 cel CELDeviceSelector
DeviceSubRequest: 1 name string!, 2 deviceClassName string!, 3 selectors *DeviceSelector, 4 allocationMode string, 5
  count int, 6 tolerations *DeviceToleration, 7 capacity CapacityRequirements, 8 derivedAttributes
  *DeviceDerivedAttribute
DeviceTaint: 1 key string!, 2 value string, 3 effect string!, 4 timeAdded Time
DeviceTaintRule: 1 metadata ObjectMeta, 2 spec DeviceTaintRuleSpec, 3 status DeviceTaintRuleStatus
DeviceTaintRuleSpec: 1 deviceSelector DeviceTaintSelector, 2 taint DeviceTaint
DeviceTaintRuleStatus: 1 conditions *Condition
DeviceTaintSelector: 2 driver string!, 3 pool string!, 4 device string!
DeviceToleration: 1 key string, 2 operator string, 3 value string, 4 effect string, 5 tolerationSeconds int!
Event: 1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason string, 4 message string, 5 source
  EventSource, 6 firstTimestamp Time, 7 lastTimestamp Time, 8 count int, 9 type string, 10 eventTime MicroTime, 11
  series EventSeries, 12 action string, 13 related ObjectReference, 14 reportingComponent string!, 15
  reportingInstance string!
EventSeries: 1 count int, 2 lastObservedTime MicroTime
EventSource: 1 component string, 2 host string
ExactDeviceRequest: 1 deviceClassName string!, 2 selectors *DeviceSelector, 3 allocationMode string, 4 count int, 5
  adminAccess bool!, 6 tolerations *DeviceToleration, 7 capacity CapacityRequirements, 8 derivedAttributes
  *DeviceDerivedAttribute
ManagedFieldsEntry: 1 manager string, 2 operation string, 3 apiVersion string, 4 time Time, 6 fieldsType string, 7
  fieldsV1 FieldsV1, 8 subresource string
NetworkDeviceData: 1 interfaceName string, 2 ips *string, 3 hardwareAddress string
NodeAllocatableMapping: 1 capacityKey string!, 2 capacityMultiplier Quantity, 3 deviceMultiplier Quantity
NodeAllocatableOverhead: 1 perPod Quantity, 2 perContainer Quantity
NodeAllocatableResource: 3 mapping NodeAllocatableMapping, 4 overhead NodeAllocatableOverhead
NodeSelector: 1 nodeSelectorTerms *NodeSelectorTerm
NodeSelectorRequirement: 1 key string!, 2 operator string!, 3 values *string
NodeSelectorTerm: 1 matchExpressions *NodeSelectorRequirement, 2 matchFields *NodeSelectorRequirement
ObjectMeta: 1 name string, 2 generateName string, 3 namespace string, 4 selfLink string, 5 uid string, 6
  resourceVersion string, 7 generation int, 8 creationTimestamp Time, 9 deletionTimestamp Time, 10
  deletionGracePeriodSeconds int!, 11 labels %string, 12 annotations %string, 13 ownerReferences *OwnerReference, 14
  finalizers *string, 17 managedFields *ManagedFieldsEntry
ObjectReference: 1 kind string, 2 namespace string, 3 name string, 4 uid string, 5 apiVersion string, 6
  resourceVersion string, 7 fieldPath string
OpaqueDeviceConfiguration: 1 driver string!, 2 parameters RawExtension
OwnerReference: 1 kind string!, 3 name string!, 4 uid string!, 5 apiVersion string!, 6 controller bool!, 7
  blockOwnerDeletion bool!
Preconditions: 1 uid string!, 2 resourceVersion string!
ResourceClaim: 1 metadata ObjectMeta, 2 spec ResourceClaimSpec, 3 status ResourceClaimStatus
ResourceClaimConsumerReference: 1 apiGroup string, 3 resource string!, 4 name string!, 5 uid string!
ResourceClaimSpec: 1 devices DeviceClaim
ResourceClaimStatus: 1 allocation AllocationResult, 2 reservedFor *ResourceClaimConsumerReference, 4 devices
  *AllocatedDeviceStatus
ResourceClaimTemplate: 1 metadata ObjectMeta, 2 spec ResourceClaimTemplateSpec
ResourceClaimTemplateSpec: 1 metadata ObjectMeta, 2 spec ResourceClaimSpec
ResourcePool: 1 name string!, 2 generation int!, 3 resourceSliceCount int!
ResourceSlice: 1 metadata ObjectMeta, 2 spec ResourceSliceSpec
ResourceSliceSpec: 1 driver string!, 2 pool ResourcePool, 3 nodeName string!, 4 nodeSelector NodeSelector, 5 allNodes
  bool!, 6 devices *Device, 7 perDeviceNodeSelection bool!, 8 sharedCounters *CounterSet, 9 partitionTypeAttribute
  string!, 10 skipNodeOperations *string
"""

FIELDS_OF_V1BETA1: Final = """
BasicDevice: 1 attributes %DeviceAttribute, 2 capacity %DeviceCapacity, 3 consumesCounters *DeviceCounterConsumption,
  4 nodeName string!, 5 nodeSelector NodeSelector, 6 allNodes bool!, 7 taints *DeviceTaint, 8 bindsToNode bool!, 9
  bindingConditions *string, 10 bindingFailureConditions *string, 11 allowMultipleAllocations bool!, 14
  nodeAllocatableResources %NodeAllocatableResource
Device: 1 name string!, 2 basic BasicDevice
DeviceRequest: 1 name string!, 2 deviceClassName string!, 3 selectors *DeviceSelector, 4 allocationMode string, 5
  count int, 6 adminAccess bool!, 7 firstAvailable *DeviceSubRequest, 8 tolerations *DeviceToleration, 9 capacity
  CapacityRequirements, 10 derivedAttributes *DeviceDerivedAttribute
DeviceSubRequest: 1 name string!, 2 deviceClassName string!, 3 selectors *DeviceSelector, 4 allocationMode string, 5
  count int, 7 tolerations *DeviceToleration, 8 capacity CapacityRequirements, 9 derivedAttributes
  *DeviceDerivedAttribute
ResourceSliceSpec: 1 driver string!, 2 pool ResourcePool, 3 nodeName string, 4 nodeSelector NodeSelector, 5 allNodes
  bool, 6 devices *Device, 7 perDeviceNodeSelection bool!, 8 sharedCounters *CounterSet, 9 partitionTypeAttribute
  string!, 10 skipNodeOperations *string
"""
