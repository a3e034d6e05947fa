// The peer of the benchmarks: a small DRA driver on Kubernetes' own helper library for drivers.
//
// It does what a driver of a node's devices has to do and nothing else: it publishes its devices in one slice, and for a
// claim it writes a CDI file and a record that survives a power cut, each whole or not at all, before it answers. A claim
// that is asked for again gets the same answer, and a device is in one claim at a time. The library registers, reads
// the claims at the API server, and keeps the slice.
//
// A pipe may tell it what to publish, one word a line: "plain", "changed" (one attribute of a device differs) or
// "tainted" (one device has a taint).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// prepared is the record of a claim: what its answer says, and so what it holds.
type prepared struct {
	UID     types.UID              `json:"uid"`
	Devices []kubeletplugin.Device `json:"devices"`
}

// driver holds the prepared claims; the library calls it for one request of the kubelet at a time.
type driver struct {
	name    string
	records string
	cdi     string
	nodes   []string
	stop    context.CancelCauseFunc

	mutex  sync.Mutex
	claims map[types.UID]prepared
	users  map[string]types.UID
}

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if known, ok := d.claims[claim.UID]; ok {
		return known.Devices, nil
	}
	made := prepared{UID: claim.UID}
	kind := d.name + "/claim"
	spec := map[string]any{"cdiVersion": "0.5.0", "kind": kind}
	var described []any
	for index, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != d.name {
			continue
		}
		if user, ok := d.users[result.Device]; ok {
			return nil, fmt.Errorf("device %s is in use by claim %s", result.Device, user)
		}
		name := fmt.Sprintf("%s-%d", claim.UID, index)
		described = append(described, map[string]any{"name": name, "containerEdits": d.edits(result.Device)})
		made.Devices = append(made.Devices, kubeletplugin.Device{
			Requests:     []string{result.Request},
			PoolName:     result.Pool,
			DeviceName:   result.Device,
			CDIDeviceIDs: []string{kind + "=" + name},
		})
	}
	spec["devices"] = described
	if err := write(d.specOf(claim.UID), spec, 0o644, false); err != nil {
		return nil, err
	}
	if err := write(d.recordOf(claim.UID), made, 0o600, true); err != nil {
		return nil, err
	}
	d.enter(made)
	return made.Devices, nil
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	results := make(map[types.UID]error, len(claims))
	for _, claim := range claims {
		results[claim.UID] = d.unprepare(claim.UID)
	}
	return results, nil
}

func (d *driver) unprepare(uid types.UID) error {
	for _, path := range []string{d.specOf(uid), d.recordOf(uid)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	for _, device := range d.claims[uid].Devices {
		delete(d.users, device.DeviceName)
	}
	delete(d.claims, uid)
	return nil
}

func (d *driver) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", message, err)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.stop(err)
	}
}

func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

func (d *driver) edits(device string) map[string]any {
	var nodes []any
	for _, path := range d.nodes {
		nodes = append(nodes, map[string]any{"path": path, "permissions": "rw"})
	}
	return map[string]any{"env": []string{"PEER_DEVICE=" + device}, "deviceNodes": nodes}
}

func (d *driver) enter(claim prepared) {
	d.claims[claim.UID] = claim
	for _, device := range claim.Devices {
		d.users[device.DeviceName] = claim.UID
	}
}

func (d *driver) recordOf(uid types.UID) string { return filepath.Join(d.records, string(uid)+".json") }

func (d *driver) specOf(uid types.UID) string {
	return filepath.Join(d.cdi, fmt.Sprintf("%s-claim_%s.json", d.name, uid))
}

// load takes over the claims that an earlier process has prepared.
func (d *driver) load() error {
	entries, err := os.ReadDir(d.records)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".json") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(d.records, entry.Name()))
		if err != nil {
			return err
		}
		var claim prepared
		if err := json.Unmarshal(content, &claim); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		d.enter(claim)
	}
	return nil
}

// write replaces a file whole; a durable one survives a power cut.
func write(path string, content any, mode os.FileMode, durable bool) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	temporary := path + ".tmp"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil && durable {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil || !durable {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// devices makes so many of them; state is a word of the pipe.
func devices(count int, state string) []resourceapi.Device {
	made := make([]resourceapi.Device, count)
	for index := range made {
		kind, number, uuid := "gpu", int64(index), fmt.Sprintf("peer-%08d", index)
		if state == "changed" && index == 0 {
			kind = state
		}
		made[index] = resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", index),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"type":  {StringValue: &kind},
				"index": {IntValue: &number},
				"uuid":  {StringValue: &uuid},
			},
		}
	}
	if state == "tainted" {
		made[0].Taints = []resourceapi.DeviceTaint{{Key: "example.com/unhealthy", Effect: "NoSchedule"}}
	}
	return made
}

// publish offers the node's devices in one pool with one slice.
func publish(ctx context.Context, helper *kubeletplugin.Helper, node string, offered []resourceapi.Device) error {
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: offered}}}
	return helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}})
}

// follow publishes what the pipe says, until it ends.
func follow(ctx context.Context, helper *kubeletplugin.Helper, pipe, node string, count int) error {
	input, err := os.Open(pipe)
	if err != nil {
		return err
	}
	words := bufio.NewScanner(input)
	for words.Scan() {
		if err := publish(ctx, helper, node, devices(count, words.Text())); err != nil {
			return err
		}
	}
	return words.Err()
}

func run() error {
	name := flag.String("name", "peer.bench.ostler.dev", "the driver's name")
	node := flag.String("node", "", "the Node's name")
	kubeconfig := flag.String("kubeconfig", "", "how the API server is reached")
	count := flag.Int("devices", 64, "how many devices are published; with none, no slice is")
	words := flag.String("words", "", "the pipe that says what to publish; without one, all devices are at once")
	nodes := flag.String("nodes", "", "device files of each device, joined by commas")
	records := flag.String("records", "", "folder of the records")
	plugins := flag.String("plugins", kubeletplugin.KubeletPluginsDir, "folder of the drivers' folders")
	registry := flag.String("registry", kubeletplugin.KubeletRegistryDir, "the kubelet's folder of registrations")
	cdi := flag.String("cdi", kubeletplugin.DefaultCDIDir, "folder of the CDI files")
	flag.Parse()

	interrupted, ended := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer ended()
	ctx, stop := context.WithCancelCause(interrupted)
	defer stop(nil)
	configuration, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	// The library's own limit of 5 requests a second would be all that is measured.
	configuration.QPS, configuration.Burst = 1000, 1000
	client, err := kubernetes.NewForConfig(configuration)
	if err != nil {
		return err
	}
	data := filepath.Join(*plugins, *name)
	for _, folder := range []string{data, *records, *cdi} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	served := &driver{
		name: *name, records: *records, cdi: *cdi, nodes: strings.Split(*nodes, ","), stop: stop,
		claims: map[types.UID]prepared{}, users: map[string]types.UID{},
	}
	if err := served.load(); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, served,
		kubeletplugin.DriverName(*name), kubeletplugin.NodeName(*node), kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(*registry),
		kubeletplugin.HealthService(false))
	if err != nil {
		return err
	}
	if *words != "" {
		go func() {
			if err := follow(ctx, helper, *words, *node, *count); err != nil {
				stop(err)
			}
		}()
	} else if *count > 0 {
		if err := publish(ctx, helper, *node, devices(*count, "plain")); err != nil {
			return err
		}
	}
	fmt.Printf("%s serving\n", time.Now().Format(time.RFC3339))
	<-ctx.Done()
	helper.Stop()
	if interrupted.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
