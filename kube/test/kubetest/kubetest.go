// SPDX-License-Identifier: Apache-2.0

// Package kubetest runs a real API server for tests: kube-apiserver and etcd, which
// kube/hack/servers.sh builds from their modules, once. Only tests import it.
package kubetest

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/caisson-os/caisson/test/freeport"
	"github.com/caisson-os/caisson/test/require"
)

// Cluster is an API server with the definitions of our kinds, and nothing else.
type Cluster struct {
	Env   *envtest.Environment
	Admin client.Client // may do everything
	dir   string        // of the programs
}

// root is the directory of the module: tests run below it.
func root(t testing.TB) string {
	t.Helper()
	for dir, err := filepath.Abs("."); err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "hack", "servers.sh")); err == nil {
			return dir
		}
	}
	t.Fatal("the test does not run in the module kube")
	return ""
}

// Programs returns the directory of Kubernetes' own programs, or says what is missing.
func Programs(t testing.TB) string {
	t.Helper()
	require.Kube(t)
	out, err := exec.Command(filepath.Join(root(t), "hack", "servers.sh"), "--where").Output()
	dir := strings.TrimSpace(string(out))
	for _, name := range []string{"kube-apiserver", "etcd", "kube-controller-manager", "kubectl"} {
		if _, missing := os.Stat(filepath.Join(dir, name)); err != nil || missing != nil {
			require.Missing(t, "kube", name+" is not in "+dir+": kube/hack/servers.sh builds it")
		}
	}
	return dir
}

// patience is for a server that starts or stops on a busy machine; an idle one takes seconds.
const patience = 5 * time.Minute

// Start runs a cluster until the test ends; change may change how its API server is started.
func Start(t testing.TB, change ...func(*envtest.APIServer)) *Cluster {
	t.Helper()
	log.SetLogger(logr.Discard())
	dir := Programs(t)
	env := &envtest.Environment{BinaryAssetsDirectory: dir, ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience,
		CRDDirectoryPaths: []string{filepath.Join(root(t), "deploy", "crds")}, ErrorIfCRDPathMissing: true,
		CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: patience}}
	api, etcd := env.ControlPlane.GetAPIServer(), &envtest.Etcd{URL: &url.URL{Scheme: "http", Host: freeport.Keep(t)}}
	api.Address, api.Port, _ = strings.Cut(freeport.Keep(t), ":")
	api.Configure().Set("authorization-mode", "Node", "RBAC").Append("enable-admission-plugins", "NodeRestriction")
	etcd.Configure().Set("listen-peer-urls", "http://"+freeport.Keep(t))
	env.ControlPlane.Etcd = etcd
	for _, c := range change {
		c(api)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err := env.Start(); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Env: env, dir: dir}
	c.Admin = Client(t, env.Config)
	return c
}

// Client returns a client that caches nothing.
func Client(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// User returns the configuration of a user who is in some groups.
func (c *Cluster) User(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	u, err := c.Env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return u.Config()
}

// Kubectl runs kubectl as an administrator with a text as its input, and returns what it
// prints.
func (c *Cluster) Kubectl(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, c.Env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(c.dir, "kubectl"), append([]string{"--kubeconfig", config}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Namespace makes a namespace.
func (c *Cluster) Namespace(t testing.TB, name string) {
	t.Helper()
	if out, err := c.Kubectl(t, "", "create", "namespace", name); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Controllers runs controllers of kube-controller-manager until the test ends.
func (c *Cluster) Controllers(t testing.TB, names ...string) {
	t.Helper()
	c.Manager(t, "--controllers", strings.Join(names, ","))
}

// Manager runs kube-controller-manager with flags until the test ends.
func (c *Cluster) Manager(t testing.TB, flags ...string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, c.Env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(c.dir, "kube-controller-manager"),
		append([]string{"--kubeconfig", config, "--leader-elect=false", "--secure-port=0"}, flags...)...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()         // it was killed
		if text, err := os.ReadFile(said.Name()); err == nil && t.Failed() {
			t.Logf("kube-controller-manager:\n%s", text[max(0, len(text)-2000):])
		}
	})
}
