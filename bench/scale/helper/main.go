// The peer of bench.scale: the least a driver on Kubernetes' own helper library for DRA drivers can be.
//
// It publishes one pool of devices, prepares every claim that the library hands over, and keeps nothing. A pipe tells
// it what to publish, one word a line: "plain", "changed" (one attribute of a device differs) or "tainted" (one device
// has a taint).
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

func main() {
	kubelet := flag.String("kubelet", "", "the kubelet's folder")
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	driver := flag.String("driver", "", "name of the driver")
	node := flag.String("node", "", "name of the Node, and of the pool")
	devices := flag.Int("devices", 8, "how many devices to publish")
	words := flag.String("words", "", "the pipe")
	flag.Parse()
	if err := run(*kubelet, *kubeconfig, *driver, *node, *words, *devices); err != nil {
		fmt.Fprintln(os.Stderr, "helper:", err)
		os.Exit(1)
	}
}

func run(kubelet, kubeconfig, driver, node, pipe string, devices int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(kubelet, "plugins", driver)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, &peer{driver: driver},
		kubeletplugin.DriverName(driver),
		kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubelet, "plugins_registry")),
	)
	if err != nil {
		return err
	}
	defer helper.Stop()
	input, err := os.Open(pipe)
	if err != nil {
		return err
	}
	words := bufio.NewScanner(input)
	for words.Scan() {
		if err := helper.PublishResources(ctx, published(node, devices, words.Text())); err != nil {
			return err
		}
	}
	return words.Err()
}

// published is one pool in one slice; state is a word of the input.
func published(node string, count int, state string) resourceslice.DriverResources {
	devices := make([]resourceapi.Device, count)
	for index := range devices {
		model := "plain"
		if state == "changed" && index == 0 {
			model = state
		}
		devices[index] = resourceapi.Device{
			Name:       fmt.Sprintf("device-%d", index),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
		}
	}
	if state == "tainted" {
		devices[0].Taints = []resourceapi.DeviceTaint{{Key: "example.com/unhealthy", Effect: "NoSchedule"}}
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}
}

// peer is the driver behind the library.
type peer struct {
	driver string
}

func (p *peer) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var devices []kubeletplugin.Device
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != p.driver {
				continue
			}
			devices = append(devices, kubeletplugin.Device{
				Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
				CDIDeviceIDs: []string{fmt.Sprintf("%s/device=%s", p.driver, result.Device)},
			})
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return results, nil
}

func (p *peer) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

func (p *peer) HandleError(_ context.Context, err error, doing string) {
	fmt.Fprintf(os.Stderr, "helper: %s: %v\n", doing, err)
}

func (p *peer) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
