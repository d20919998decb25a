// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/freeport"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
	machines "github.com/caisson-os/caisson/test/vm"
)

const (
	guestRegistry = "10.0.2.100:5000"
	guestFleet    = "10.0.2.102:8080"
	busybox       = guestRegistry + "/images/busybox:1" // what pods of tests are made of
)

// fleet is one whose nodes are Nodes of a cluster.
type fleet struct {
	*testing.T
	*machines.Fleet
	cluster *cluster
	service string // address of the fleet's service
	layer   string // digest of its first layer
}

// newFleet publishes examples/kubernetes for a cluster, and serves what its machines boot from.
func newFleet(t *testing.T, c *cluster) *fleet {
	t.Helper()
	f, key := prepared(t, c)
	f.fits(key)
	f.layer = f.build()
	f.publish()
	f.must(f.Netboot(t.Context()))
	f.must(f.Serve(t.Context()))
	f.serves()
	return f
}

// prepared is a directory with the programs, examples/kubernetes as it stands, a registry, and
// an archive with a kubelet, whose key it returns.
func prepared(t *testing.T, c *cluster) (f *fleet, key string) {
	t.Helper()
	require.Root(t)
	require.Net(t)
	require.Tool(t, "qemu-system-x86_64", "busybox", "mmdebstrap", "mksquashfs", "gpg", "dpkg-deb", "dpkg-scanpackages", "mkfs.ext4")
	dir := t.TempDir()
	f = &fleet{T: t, cluster: c, Fleet: &machines.Fleet{Dir: dir, Bin: filepath.Join(dir, "bin"), Registry: registrytest.WithReferrers(t) + "/metal-a", Show: t.Output()}}
	f.does(exec.Command("make", "-s", "-C", "../..", "build", "kube", "BIN="+f.Bin))
	f.caisson("init", ".")
	const example = "../../examples/kubernetes"
	f.must(f.UseExample(filepath.Join(example, "site.yaml")))
	f.edit("files/bootstrap.yaml", "api.metal-a.example.org", guestAPI)
	f.edit("files/containerd.toml", "registry.example.org:5000/pause:3.10", busybox)
	f.write("files/ca.pem", string(c.authority.pem))
	f.image("busybox", "bin/busybox")
	return f, f.archive(filepath.Join(example, "make-archive"))
}

// mirror has containerd ask the test's registry, without TLS.
const mirror = "[host.\"http://" + guestRegistry + "\"]\n"

// archive makes an archive with the cluster's kubelet, and returns its key.
func (f *fleet) archive(script string) string {
	f.Helper()
	kubelet := filepath.Join(kubetest.Programs(f.T), "kubelet")
	if _, err := os.Stat(kubelet); err != nil {
		require.Missing(f.T, "kube", kubelet+" is not there: kube/hack/servers.sh --kubelet builds it")
	}
	cmd := exec.Command(script, kubelet, filepath.Join(f.Dir, "archive"))
	keyring, err := os.MkdirTemp("", "gpg") // its socket's path has a limit
	f.must(err)
	f.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", keyring, "--kill", "all").Run() // it ends without its directory, too
		f.must(os.RemoveAll(keyring))
	})
	cmd.Env = append(os.Environ(), "GNUPGHOME="+keyring)
	return f.does(cmd)
}

var armoured = regexp.MustCompile(`(?s)-----BEGIN PGP PUBLIC KEY BLOCK-----.*-----END PGP PUBLIC KEY BLOCK-----\n`)

// fits puts this place's addresses and keys into the example, which has an administrator's.
func (f *fleet) fits(key string) {
	f.Helper()
	site := f.read("site.yaml")
	f.write("site.yaml", armoured.ReplaceAllLiteralString(site, strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n          ")+"\n"))
	f.edit("site.yaml", "file:///srv/kubelet", "file://"+filepath.Join(f.Dir, "archive"))
	f.edit("site.yaml", "https://fleet.example.org:8443", "http://"+guestFleet)
	f.edit("site.yaml", "agent: {report: {", "agent: {poll: 1m, report: {interval: 10s, ")
	f.edit("site.yaml", "windows: [night]", "windows: [always]")
	f.edit("site.yaml", "10248/healthz\"", "10248/healthz\", retries: 1000") // an emulated machine is slow
	f.edit("site.yaml", "  files:\n", fmt.Sprintf("  files:\n    /etc/containerd/certs.d/_default/hosts.toml: {content: %q}\n", mirror))
}

// serves starts the fleet's service, with the slots of workers and a token for who drains.
func (f *fleet) serves() {
	f.Helper()
	token := f.caisson("fleet", "token", "caisson-kube", "--role", "drain", "--tokens", "tokens")
	f.must(os.MkdirAll(filepath.Join(f.Dir, "metal-a", "keys"), 0o755))
	f.write("metal-a/keys/operator.pub", f.read("keys/operator.pub"))
	f.write("metal-a/token", strings.TrimSpace(token)+"\n")
	f.must(os.Chmod(filepath.Join(f.Dir, "metal-a", "token"), 0o600))
	var err error
	f.service, err = f.Server(f.Context(), "fleet", "serve", "--from", f.To(), "--site", "site.yaml", "--tokens", "tokens",
		"--host", strings.Split(guestFleet, ":")[0], "--listen", "127.0.0.1:0", "--slot", "workers=1", "--drain", "workers")
	f.must(err)
}

// drains starts caisson-kube, and returns the address of its metrics.
func (f *fleet) drains() string {
	f.Helper()
	f.write("kubeconfig", string(f.cluster.Env.KubeConfig))
	f.cluster.Namespace(f.T, "metal-a")
	at := freeport.Keep(f.T)
	cmd := exec.Command(filepath.Join(f.Bin, "caisson-kube"), "--namespace", "metal-a", "--dir", f.Dir, "--state", filepath.Join(f.Dir, "remembered"), "--leader-elect=false",
		"--health", "127.0.0.1:0", "--metrics", at, "--fleet", "metal-a=http://"+f.service, "--drain", "--registry", "metal-a="+f.To(), "--plain-http")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(f.Dir, "kubeconfig"))
	cmd.Stdout, cmd.Stderr = f.Output(), f.Output()
	f.must(cmd.Start())
	f.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()         // it was killed
	})
	return at
}

// boots starts a node of the example.
func (f *fleet) boots(name, mac string) *machine.Machine {
	f.Helper()
	m, err := f.Boot(f.Context(), machine.Options{Name: name, MAC: mac, Memory: 3072, Forwards: map[string]string{guestFleet: f.service, guestAPI + ":6443": f.api()}})
	return f.watched(m, err)
}

// api is the API server's address on this host.
func (f *fleet) api() string {
	return strings.Trim(strings.TrimPrefix(f.cluster.Env.Config.Host, "https:"), "/") // it ends with one
}

// watched ends a machine with the test, and shows what it said when that failed.
func (f *fleet) watched(m *machine.Machine, err error) *machine.Machine {
	f.Helper()
	f.must(err)
	f.Cleanup(func() {
		if f.Failed() {
			f.Logf("end of the console of %s:\n%s\n%s", m.Name, m.Console.Tail(60), f.journal(m))
		}
		m.PowerCut()
		used, err := m.Used()
		f.Logf("machine %s had %.0f s of a processor, %v", m.Name, used.Seconds(), err)
	})
	return m
}

// journal is what a machine's kubelet and containerd said last, where somebody may log in.
func (f *fleet) journal(m *machine.Machine) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), time.Minute)
	defer cancel()
	s, err := m.Login(ctx, "admin", f.Key)
	if err != nil {
		return err.Error()
	}
	defer s.Close() // the test is over
	out, err := s.Run(ctx, "sudo caisson-agent status; sudo journalctl -b -q --no-pager -o cat -n 80 -u kubelet -u containerd")
	return fmt.Sprint(out, err)
}

// login waits for sshd and for all that a boot starts.
func (f *fleet) login(m *machine.Machine) *machine.Session {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), limit)
	defer cancel()
	s, err := m.Login(ctx, "admin", f.Key)
	f.must(err)
	f.Cleanup(func() { s.Close() }) // the test is over
	f.run(s, machines.Settled)
	return s
}

func (f *fleet) run(s *machine.Session, command string) string {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), limit)
	defer cancel()
	out, err := s.Run(ctx, command)
	f.must(err)
	return out
}

func (f *fleet) status(s *machine.Session) (st spec.Status) {
	f.Helper()
	f.must(json.Unmarshal([]byte(f.run(s, "sudo caisson-agent status -o json || [ $? -eq 3 ]")), &st))
	return st
}

// build bakes the site's layer, and returns the digest by which a pin names it.
func (f *fleet) build() string {
	f.Helper()
	f.caisson("build", "site.yaml", "--to", f.To(), "--key", "keys/release.key", "--fast")
	r, err := registry.Open(f.Registry, registry.Options{PlainHTTP: true})
	f.must(err)
	raw, _, err := r.Manifest(f.Context(), oci.RepoLayer, "current")
	f.must(err)
	return oci.Digest(raw)
}

func (f *fleet) publish() {
	f.Helper()
	f.caisson("publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key")
}

func (f *fleet) caisson(args ...string) string {
	f.Helper()
	out, err := f.Caisson(f.Context(), args...)
	f.must(err)
	return out
}

// does runs a command, and returns its standard output.
func (f *fleet) does(cmd *exec.Cmd) string {
	f.Helper()
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		f.Fatalf("%s: %v\n%s%s", cmd, err, out, &said)
	}
	return string(out)
}

func (f *fleet) read(name string) string {
	f.Helper()
	data, err := os.ReadFile(filepath.Join(f.Dir, name))
	f.must(err)
	return string(data)
}

func (f *fleet) write(name, text string) {
	f.Helper()
	f.must(os.WriteFile(filepath.Join(f.Dir, name), []byte(text), 0o644))
}

// edit changes a file of the site; a text that is not there is a broken test.
func (f *fleet) edit(name, from, to string) {
	f.Helper()
	text := f.read(name)
	if !strings.Contains(text, from) {
		f.Fatalf("%s has no %q", name, from)
	}
	f.write(name, strings.ReplaceAll(text, from, to))
}

func (f *fleet) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}
