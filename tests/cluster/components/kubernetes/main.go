// The components of a Kubernetes cluster as one multi-call binary: the name it is called by says which.
//
// One binary shares the code that all of them link, which makes it a quarter of the size and of the build.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	component := filepath.Base(os.Args[0])
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	switch command, known := commands[component]; {
	case component == "etcd":
		etcdmain.Main(os.Args)
	case component == "kubelet":
		// It parses its flags itself; cli.Run would print every error twice.
		if err := cli.RunNoErrOutput(kubelet.NewKubeletCommand(context.Background())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case known:
		os.Exit(cli.Run(command()))
	default:
		fmt.Fprintf(os.Stderr, "call it by a link with the name of a component, not %q\n", component)
		os.Exit(2)
	}
}
