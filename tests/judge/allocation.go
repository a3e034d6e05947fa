package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type allocationCase struct {
	Features struct {
		AdminAccess             bool `json:"adminAccess"`
		ConsumableCapacity      bool `json:"consumableCapacity"`
		DeviceBindingAndStatus  bool `json:"deviceBindingAndStatus"`
		DeviceTaints            bool `json:"deviceTaints"`
		FractionalCapacityRange bool `json:"fractionalCapacityRange"`
		ListTypeAttributes      bool `json:"listTypeAttributes"`
		PartitionableDevices    bool `json:"partitionableDevices"`
		PrioritizedList         bool `json:"prioritizedList"`
	} `json:"features"`
	Node *corev1.Node `json:"node"`
	// More are asked about after Node, one by one, with the same allocator.
	More      []*corev1.Node               `json:"moreNodes"`
	Classes   []*resourceapi.DeviceClass   `json:"classes"`
	Slices    []*resourceapi.ResourceSlice `json:"slices"`
	Claims    []*resourceapi.ResourceClaim `json:"claims"`
	Allocated struct {
		Devices  [][3]string `json:"devices"`
		Shared   [][4]string `json:"shared"`
		Capacity []struct {
			Driver, Pool, Device string
			Consumed             map[resourceapi.QualifiedName]resource.Quantity
		} `json:"capacity"`
	} `json:"allocated"`
}

type allocationAnswer struct {
	Results   []resourceapi.AllocationResult `json:"results"`
	Error     *string                        `json:"error"`
	ErrorKind *string                        `json:"errorKind"`
	Steps     *int64                         `json:"steps,omitempty"`
	// More are the answers for the nodes after the first.
	More []any `json:"more,omitempty"`
}

// sameShareID stands for every share ID, which are random.
const sameShareID = types.UID("*")

func init() {
	// What "stable" lacks is listed in the README of the vectors.
	structured.EnableAllocators("incubating", "experimental")
}

// selectorCaches keeps compiled selectors over cases.
var selectorCaches = map[dracel.Features]*dracel.Cache{}

func allocate(ctx context.Context, line []byte) (any, error) {
	var given allocationCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	allocator, err := given.allocator(ctx)
	if err != nil {
		return nil, err
	}
	first, err := given.onNode(ctx, allocator, given.Node)
	if answer, whole := first.(allocationAnswer); err == nil && whole {
		for _, node := range given.More {
			more, err := given.onNode(ctx, allocator, node)
			if err != nil {
				return nil, err
			}
			answer.More = append(answer.More, more)
		}
		first = answer
	}
	return first, err
}

func (given *allocationCase) onNode(
	ctx context.Context, allocator structured.Allocator, node *corev1.Node,
) (any, error) {
	results, err := allocator.Allocate(ctx, node, given.Claims)
	if err != nil && ctx.Err() != nil {
		return map[string]any{"timeout": true, "steps": steps(allocator)}, nil
	}
	if err := hideShareIDs(results); err != nil {
		return nil, err
	}
	answer := allocationAnswer{Results: results, Steps: steps(allocator)}
	if err != nil {
		text, kind := err.Error(), "fatal"
		if errors.Is(err, structured.ErrFailedAllocationOnNode) {
			kind = "node"
		}
		answer.Error, answer.ErrorKind = &text, &kind
	}
	return answer, nil
}

func (given *allocationCase) allocator(ctx context.Context) (structured.Allocator, error) {
	features := structured.Features{
		AdminAccess:             given.Features.AdminAccess,
		ConsumableCapacity:      given.Features.ConsumableCapacity,
		DeviceBindingAndStatus:  given.Features.DeviceBindingAndStatus,
		DeviceTaints:            given.Features.DeviceTaints,
		FractionalCapacityRange: given.Features.FractionalCapacityRange,
		ListTypeAttributes:      given.Features.ListTypeAttributes,
		PartitionableDevices:    given.Features.PartitionableDevices,
		PrioritizedList:         given.Features.PrioritizedList,
	}
	celFeatures := dracel.Features{
		EnableConsumableCapacity: features.ConsumableCapacity,
		EnableListTypeAttributes: features.ListTypeAttributes,
	}
	if selectorCaches[celFeatures] == nil {
		selectorCaches[celFeatures] = dracel.NewCache(1000, celFeatures)
	}
	return structured.NewAllocator(
		ctx, features, given.state(), classes(given.Classes), given.Slices, selectorCaches[celFeatures])
}

func (given *allocationCase) state() structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, id := range given.Allocated.Devices {
		state.AllocatedDevices.Insert(structured.MakeDeviceID(id[0], id[1], id[2]))
	}
	for _, id := range given.Allocated.Shared {
		share := types.UID(id[3])
		device := structured.MakeDeviceID(id[0], id[1], id[2])
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(device, &share))
	}
	for _, used := range given.Allocated.Capacity {
		device := structured.MakeDeviceID(used.Driver, used.Pool, used.Device)
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(device, used.Consumed))
	}
	return state
}

// classes is the lister of the allocator.
type classes []*resourceapi.DeviceClass

func (known classes) List() ([]*resourceapi.DeviceClass, error) {
	return known, nil
}

func (known classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range known {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("there is no DeviceClass %q", name)
}

// hideShareIDs fails if two results carry the same one.
func hideShareIDs(results []resourceapi.AllocationResult) error {
	seen := sets.New[types.UID]()
	hidden := sameShareID
	for _, result := range results {
		for i := range result.Devices.Results {
			device := &result.Devices.Results[i]
			if device.ShareID == nil {
				continue
			}
			if seen.Has(*device.ShareID) {
				return fmt.Errorf("share ID %s was given twice", *device.ShareID)
			}
			seen.Insert(*device.ShareID)
			device.ShareID = &hidden
		}
	}
	return nil
}

// steps are the calls of the recursive search; nil where the engine does not tell. The type of the method's answer has
// no public name.
func steps(allocator structured.Allocator) *int64 {
	method := reflect.ValueOf(allocator).MethodByName("GetStats")
	if !method.IsValid() {
		return nil
	}
	field := method.Call(nil)[0].FieldByName("NumAllocateOneInvocations")
	if !field.IsValid() {
		return nil
	}
	count := field.Int()
	return &count
}
