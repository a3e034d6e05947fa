package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	syncDelay = 700 * time.Millisecond
	cacheTTL  = 1500 * time.Millisecond
	quiet     = 3 * time.Second
	longest   = 15 * time.Second
	// A retry later than this would come after the step.
	longestRetry = time.Second
)

// stage is one scenario being played.
type stage struct {
	ctx        context.Context
	scenario   *Scenario
	others     kubernetes.Interface
	controlled *rest.Config
	wire       *wire
	uids       map[string]string
	drivers    map[string]bool
	created    []string
	late       []string
	controller *resourceslice.Controller
	settings   Action
	mutex      sync.Mutex
	errors     []map[string]any
}

func play(config *rest.Config, scenario *Scenario) error {
	others, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	s := &stage{
		ctx: context.Background(), scenario: scenario, others: others, wire: &wire{},
		uids: map[string]string{}, drivers: map[string]bool{scenario.Driver: true},
	}
	s.wire.act = s.act
	s.controlled = rest.CopyConfig(config)
	// Our own dicts are read from bodies, which protobuf would hide.
	s.controlled.ContentType, s.controlled.AcceptContentTypes = "application/json", "application/json"
	s.controlled.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.wire.next = next
		return s.wire
	})
	defer s.clear()
	for _, name := range scenario.Nodes {
		if err := s.createNode(name); err != nil {
			return err
		}
	}
	for _, each := range scenario.Initial {
		if err := s.create(each); err != nil {
			return fmt.Errorf("initial: %w", err)
		}
	}
	for number, step := range scenario.Steps {
		if step.Expect, err = s.step(step.Action); err != nil {
			return fmt.Errorf("step %d: %w", number, err)
		}
	}
	return nil
}

func (s *stage) step(raw json.RawMessage) (*Expect, error) {
	var action Action
	if err := json.Unmarshal(raw, &action); err != nil {
		return nil, err
	}
	s.mutex.Lock()
	s.errors = nil
	s.mutex.Unlock()
	s.wire.begin(action.Faults)
	begun := time.Now()
	if err := s.act(&action); err != nil {
		return nil, err
	}
	idle := true
	for time.Since(s.wire.lastSuccess()) < quiet {
		if time.Since(begun) > longest {
			idle = false
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	expect := &Expect{NeverIdle: !idle}
	if err := s.describe(expect, s.wire.end()); err != nil {
		return nil, err
	}
	return expect, nil
}

func (s *stage) act(action *Action) error {
	switch action.Do {
	case "wait":
		return nil
	case "start":
		s.settings = Action{Owner: action.Owner, Only: action.Only}
		return s.start(action.Resources)
	case "restart":
		s.stop()
		if action.Owner != nil {
			s.settings.Owner = action.Owner
		}
		if action.Only != "" {
			s.settings.Only = action.Only
		}
		return s.start(action.Resources)
	case "stop":
		s.stop()
		return nil
	case "update":
		s.controller.Update(action.Resources.wanted())
		return nil
	case "updates":
		for _, each := range action.List {
			s.controller.Update(each.wanted())
		}
		return nil
	case "all":
		for index := range action.Steps {
			if err := s.act(&action.Steps[index]); err != nil {
				return err
			}
		}
		return nil
	case "createNode":
		s.late = append(s.late, action.Node)
		return s.createNode(action.Node)
	case "create":
		return s.create(action.Object)
	case "edit", "delete":
		return s.touch(action)
	}
	return fmt.Errorf("unknown action %q", action.Do)
}

func (s *stage) start(resources *Resources) error {
	client, err := kubernetes.NewForConfig(s.controlled)
	if err != nil {
		return err
	}
	delay, ttl := syncDelay, cacheTTL
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, longestRetry)
	uid := ""
	if s.settings.Owner != nil {
		uid = s.uid(s.settings.Owner.UID)
	}
	s.controller, err = resourceslice.StartController(s.ctx, resourceslice.Options{
		DriverName: s.scenario.Driver, KubeClient: client, Owner: s.settings.Owner.wanted(uid),
		Resources: resources.wanted(), SyncDelay: &delay, MutationCacheTTL: &ttl,
		Queue:                 workqueue.NewTypedRateLimitingQueue[string](limiter),
		ErrorHandler:          func(_ context.Context, err error, _ string) { s.told(err) },
		ReconcilePoolWithName: s.settings.Only,
	})
	return err
}

func (s *stage) stop() {
	if s.controller != nil {
		s.controller.Stop()
		s.controller = nil
	}
}

func (s *stage) told(err error) {
	text := err.Error()
	for _, each := range s.wire.names() {
		text = strings.ReplaceAll(text, each, "<new>")
	}
	told := map[string]any{"error": text}
	var dropped *resourceslice.DroppedFieldsError
	var status apierrors.APIStatus
	if errors.As(err, &dropped) {
		told["droppedFields"] = map[string]any{
			"pool": dropped.PoolName, "sliceIndex": dropped.SliceIndex, "disabledFeatures": dropped.DisabledFeatures(),
		}
	} else if errors.As(err, &status) {
		told["code"] = status.Status().Code
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, each := range s.errors {
		if each["error"] == text {
			return
		}
	}
	s.errors = append(s.errors, told)
}

func (s *stage) createNode(name string) error {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	found, err := s.others.CoreV1().Nodes().Create(s.ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Recorded scenarios share their nodes.
		found, err = s.others.CoreV1().Nodes().Get(s.ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	s.uids[name] = string(found.UID)
	return nil
}

func (s *stage) create(raw json.RawMessage) error {
	var slice resourceapi.ResourceSlice
	if err := json.Unmarshal(raw, &slice); err != nil {
		return err
	}
	for index := range slice.OwnerReferences {
		slice.OwnerReferences[index].UID = types.UID(s.uid(string(slice.OwnerReferences[index].UID)))
	}
	s.drivers[slice.Spec.Driver] = true
	_, err := s.others.ResourceV1().ResourceSlices().Create(s.ctx, &slice, metav1.CreateOptions{})
	return err
}

func (s *stage) touch(action *Action) error {
	names, err := s.targets(action.Target)
	if err != nil {
		return err
	}
	slices := s.others.ResourceV1().ResourceSlices()
	for _, name := range names {
		if action.Do == "edit" {
			_, err = slices.Patch(s.ctx, name, types.MergePatchType, action.Patch, metav1.PatchOptions{})
		} else {
			err = slices.Delete(s.ctx, name, metav1.DeleteOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) targets(target *Target) ([]string, error) {
	if target.Name != "" {
		return []string{target.Name}, nil
	}
	found, err := s.list(s.scenario.Driver)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, each := range found {
		prefix, _, _ := strings.Cut(each.Name, "-")
		index, err := strconv.ParseInt(prefix, 16, 64)
		if each.Spec.Pool.Name == target.Pool && (target.All || (err == nil && int(index) == target.Index)) {
			names = append(names, each.Name)
		}
	}
	sort.Strings(names)
	if !target.All && len(names) > 1 {
		names = names[:1]
	}
	return names, nil
}

func (s *stage) list(driver string) ([]resourceapi.ResourceSlice, error) {
	options := metav1.ListOptions{FieldSelector: "spec.driver=" + driver}
	found, err := s.others.ResourceV1().ResourceSlices().List(s.ctx, options)
	if err != nil {
		return nil, err
	}
	return found.Items, nil
}

func (s *stage) uid(text string) string {
	if name, found := strings.CutPrefix(text, "$uid:"); found {
		return s.uids[name]
	}
	return text
}

// clear leaves the server as it was, but for nodes that several scenarios have.
func (s *stage) clear() {
	s.stop()
	for driver := range s.drivers {
		found, _ := s.list(driver)
		for _, each := range found {
			slices := s.others.ResourceV1().ResourceSlices()
			if len(each.Finalizers) > 0 {
				none := []byte(`{"metadata":{"finalizers":null}}`)
				_, _ = slices.Patch(s.ctx, each.Name, types.MergePatchType, none, metav1.PatchOptions{})
			}
			_ = slices.Delete(s.ctx, each.Name, metav1.DeleteOptions{})
		}
	}
	for _, name := range s.late {
		_ = s.others.CoreV1().Nodes().Delete(s.ctx, name, metav1.DeleteOptions{})
	}
}

func plain(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var made any
	return made, errors.Join(decoder.Decode(&made))
}
