// Command kubernetes is every Kubernetes program in one file (150 MB instead of nine times 60).
//
// The program is picked by the name it is called by, or by the first argument:
// a symlink kubectl -> kubernetes and `kubernetes kubectl` are the same.
// cluster/embedded_cluster/build.py builds it; its go.mod is the only place that names the version.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var servers = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func known(name string) bool {
	return name == "kubeadm" || name == "kubectl" || servers[name] != nil
}

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) && len(os.Args) > 1 {
		// The commands read os.Args themselves, so it has to look as if called by name.
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	switch {
	case name == "kubeadm":
		// Run returns some errors without having printed them.
		if err := kubeadm.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "kubeadm:", err)
			os.Exit(1)
		}
	case name == "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	case servers[name] != nil:
		os.Exit(cli.Run(servers[name]()))
	default:
		fmt.Fprintf(os.Stderr, "error: %q is no program of this binary\n", name)
		os.Exit(2)
	}
}
