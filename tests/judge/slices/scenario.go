package main

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// Scenario is one entry of a vector file.
type Scenario struct {
	ID      string            `json:"id"`
	Title   string            `json:"title,omitempty"`
	Server  string            `json:"server"`
	Driver  string            `json:"driver"`
	Nodes   []string          `json:"nodes"`
	Initial []json.RawMessage `json:"initial"`
	Steps   []*Step           `json:"steps"`
	Problem string            `json:"problem,omitempty"`
}

// Step is an action and what came of it.
type Step struct {
	Action json.RawMessage `json:"action"`
	Expect *Expect         `json:"expect,omitempty"`
}

// Action is what is done, by the driver or by somebody else.
type Action struct {
	Do        string          `json:"do"`
	Resources *Resources      `json:"resources"`
	Owner     *Owner          `json:"owner"`
	Only      string          `json:"reconcilePoolWithName"`
	List      []*Resources    `json:"list"`
	Target    *Target         `json:"target"`
	Patch     json.RawMessage `json:"patch"`
	Object    json.RawMessage `json:"object"`
	Node      string          `json:"node"`
	Steps     []Action        `json:"steps"`
	Faults    []Fault         `json:"faults"`
}

// Owner is the owner of the slices.
type Owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
}

// Target says which slices somebody else touches.
type Target struct {
	Name  string `json:"name"`
	Pool  string `json:"pool"`
	Index int    `json:"index"`
	All   bool   `json:"all"`
}

// Fault is what goes wrong with requests of the controller.
type Fault struct {
	Verb   string  `json:"verb"`
	Kind   string  `json:"kind"`
	Status int     `json:"status"`
	Skip   int     `json:"skip"`
	Count  int     `json:"count"`
	Then   *Action `json:"then"`
}

// Resources is what a driver wants published.
type Resources struct {
	Pools map[string]struct {
		NodeSelector *v1.NodeSelector `json:"nodeSelector"`
		AllNodes     bool             `json:"allNodes"`
		Generation   int64            `json:"generation"`
		Slices       []struct {
			Devices                []resourceapi.Device     `json:"devices"`
			SharedCounters         []resourceapi.CounterSet `json:"sharedCounters"`
			PerDeviceNodeSelection *bool                    `json:"perDeviceNodeSelection"`
		} `json:"slices"`
	} `json:"pools"`
}

func (r *Resources) wanted() *resourceslice.DriverResources {
	if r == nil {
		return nil
	}
	made := &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	for name, pool := range r.Pools {
		slices := []resourceslice.Slice{}
		for _, each := range pool.Slices {
			slices = append(slices, resourceslice.Slice{
				Devices: each.Devices, SharedCounters: each.SharedCounters,
				PerDeviceNodeSelection: each.PerDeviceNodeSelection,
			})
		}
		made.Pools[name] = resourceslice.Pool{
			NodeSelector: pool.NodeSelector, AllNodes: pool.AllNodes, Generation: pool.Generation, Slices: slices,
		}
	}
	return made
}

func (o *Owner) wanted(uid string) *resourceslice.Owner {
	if o == nil {
		return nil
	}
	return &resourceslice.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: types.UID(uid)}
}

// Expect is what the reference did in a step.
type Expect struct {
	State     []map[string]any  `json:"state"`
	Writes    []map[string]any  `json:"writes"`
	Counts    map[string][2]int `json:"counts"`
	Errors    []map[string]any  `json:"errors"`
	NeverIdle bool              `json:"neverIdle,omitempty"`
}
