// Plays scenarios of slices with Kubernetes' own ResourceSlice controller and says what it did.
//
// A scenario a line on standard input, the same with its expectations a line on standard output, in the formats of
// tests/vectors/slices/README.md; scenarios are played side by side and come back in any order.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func main() {
	servers := map[string]*string{
		"default":   flag.String("default", "", "URL of the API server with the default gates"),
		"gates-off": flag.String("gates-off", "", "URL of the API server with the gates off"),
	}
	token := flag.String("token", "", "bearer token for both")
	parallel := flag.Int("parallel", 100, "scenarios at a time")
	flag.Parse()
	// The library logs every fault that the handler hears as well.
	klog.LogToStderr(false)
	klog.SetOutput(discard{})

	places := make(chan struct{}, *parallel)
	var out sync.Mutex
	var all sync.WaitGroup
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var played Scenario
		if err := json.Unmarshal(lines.Bytes(), &played); err != nil {
			fmt.Fprintln(os.Stderr, "judge: a scenario that cannot be read:", err)
			os.Exit(1)
		}
		url := servers[played.Server]
		if url == nil || *url == "" {
			fmt.Fprintln(os.Stderr, "judge: no server", played.Server)
			os.Exit(1)
		}
		config := &rest.Config{
			Host: *url, BearerToken: *token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		}
		places <- struct{}{}
		all.Add(1)
		go func() {
			defer all.Done()
			defer func() { <-places }()
			if err := play(config, &played); err != nil {
				played.Problem = err.Error()
			}
			out.Lock()
			defer out.Unlock()
			if err := encoder.Encode(&played); err != nil {
				panic(err)
			}
		}()
	}
	all.Wait()
}

type discard struct{}

func (discard) Write(data []byte) (int, error) { return len(data), nil }
