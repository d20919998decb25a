// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// TestMain lets the test's program be caisson-kube, and a program that holds a key for it.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "caisson-kube":
		os.Args = os.Args[1:]
		main()
	case len(os.Args) == 4 && os.Args[1] == "signer":
		if err := holdKey(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// holdKey answers as a program of --signer-command does.
func holdKey(file, verb string) error {
	key, err := keys.Open(file, nil)
	if err != nil {
		return err
	}
	if verb == "public" {
		_, err := os.Stdout.Write(sign.VerifierOf(key).PEM())
		return err
	}
	asked, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	digest, err := hex.DecodeString(strings.TrimSpace(string(asked)))
	if err != nil {
		return err
	}
	sig, err := key.Sign(rand.Reader, digest, crypto.SHA256)
	if err == nil {
		fmt.Println(base64.StdEncoding.EncodeToString(sig))
	}
	return err
}

// desk is where an operator works: a directory with a key, caisson, and a way to the cluster.
type desk struct {
	*testing.T
	c         *kubetest.Cluster
	dir       string
	namespace string
	registry  string
	patience  time.Duration // for a status
}

var caissonProgram string // built once for all tests of this package

func newDesk(t *testing.T, c *kubetest.Cluster, namespace string) *desk {
	t.Helper()
	d := &desk{t, c, t.TempDir(), namespace, registrytest.WithReferrers(t) + "/fleet", 2 * time.Minute}
	if err := os.WriteFile(filepath.Join(d.dir, "kubeconfig"), c.Env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	d.caisson("keys", "generate", "keys/operator")
	c.Namespace(t, namespace)
	return d
}

// caisson runs the operator's program, and returns all that it says.
func (d *desk) caisson(args ...string) string {
	d.Helper()
	cmd := exec.CommandContext(d.Context(), caissonProgram, args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "HOME="+d.dir, "KUBECONFIG="+filepath.Join(d.dir, "kubeconfig"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.Fatalf("caisson %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// bridge runs caisson-kube with flags until the test ends; what it remembers stays.
func (d *desk) bridge(args ...string) *exec.Cmd {
	d.Helper()
	beside := filepath.Join(d.dir, "beside", d.namespace, "keys")
	for _, dir := range []string{beside, filepath.Join(d.dir, "state")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			d.Fatal(err)
		}
	}
	public, err := os.ReadFile(filepath.Join(d.dir, "keys", "operator.pub"))
	if err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(beside, "operator.pub"), public, 0o644); err != nil {
		d.Fatal(err)
	}
	said, err := os.CreateTemp(d.dir, "said")
	if err != nil {
		d.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], append([]string{"caisson-kube", "--namespace", d.namespace, "--dir", "beside", "--state", "state", "--plain-http", "--new-fleet", "--health", "127.0.0.1:0", "--leader-elect=false"}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, said, said
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(d.dir, "kubeconfig"))
	if err := cmd.Start(); err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		_ = cmd.Process.Kill() // it keeps nothing
		_ = cmd.Wait()         // it was killed
		if text, err := os.ReadFile(said.Name()); err == nil && d.Failed() {
			d.Logf("caisson-kube:\n%s", text[max(0, len(text)-2000):])
		}
	})
	return cmd
}

func (d *desk) apply(text string) {
	d.Helper()
	if out, err := d.c.Kubectl(d.T, text, "apply", "--server-side", "--force-conflicts", "--namespace", d.namespace, "-f", "-"); err != nil {
		d.Fatalf("%v\n%s", err, out)
	}
}

// site applies the Site with a value.
func (d *desk) site(value string) {
	d.Helper()
	d.apply("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: " + d.namespace + "}\nregistry: " + d.registry + "\nnodes: [{name: n1}]\nconf: {sysctl: {vm.swappiness: \"" + value + "\"}}\n")
}

// status waits until a field of the Site's status is as wanted, with the object as it is.
func (d *desk) status(what, path string, ok func(string) bool) string {
	d.Helper()
	var last string
	for end := time.Now().Add(d.patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		out, err := d.c.Kubectl(d.T, "", "get", "site", d.namespace, "--namespace", d.namespace, "-o", "jsonpath={.metadata.generation} {.status.observedGeneration} "+path)
		if err != nil {
			d.Fatalf("%v\n%s", err, out)
		}
		last = out
		if fields := strings.SplitN(out, " ", 3); len(fields) == 3 && fields[0] == fields[1] && ok(fields[2]) {
			return fields[2]
		}
	}
	conditions, err := d.c.Kubectl(d.T, "", "get", "site", d.namespace, "--namespace", d.namespace, "-o", "jsonpath={.status.conditions}")
	d.Fatalf("%s: it is %q; %s, %v", what, last, conditions, err)
	return ""
}

const publishedReason = `{.status.conditions[?(@.type=="Published")].reason}`

func is(want string) func(string) bool { return func(got string) bool { return got == want } }

var planned = regexp.MustCompile(`the plan is (act:sha256:[0-9a-f]{64})`)

// dryRun returns the digest that 'caisson publish --dry-run' prints.
func (d *desk) dryRun() string {
	d.Helper()
	out := d.caisson("publish", "--from-cluster", "--kubectl", filepath.Join(kubetest.Programs(d.T), "kubectl"), "--namespace", d.namespace, "--dry-run", "--new-fleet")
	m := planned.FindStringSubmatch(out)
	if m == nil {
		d.Fatalf("no digest of a plan:\n%s", out)
	}
	return m[1]
}

// holds looks whether the registry has the node's overlay, by the operator's key.
func (d *desk) holds() {
	d.Helper()
	if out := d.caisson("verify", d.registry, "--key", "keys/operator.pub"); !strings.Contains(out, "ok\tnode:n1") {
		d.Errorf("it is published, and the registry has\n%s", out)
	}
}

// buildCaisson builds the operator's program in a directory.
func buildCaisson(t *testing.T, dir string) {
	t.Helper()
	caissonProgram = filepath.Join(dir, "caisson")
	build := exec.Command("go", "build", "-o", caissonProgram, "./cmd/caisson")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestSigns: with --key and with --signer-command caisson-kube publishes what was approved, and
// its Site's status.plan is the digest that 'caisson publish --from-cluster --dry-run' prints, for
// a first publish and for a later one; with --without-approval it waits for nobody.
func TestSigns(t *testing.T) {
	c := kubetest.Start(t)
	buildCaisson(t, t.TempDir())
	for name, flags := range map[string]func(d *desk) []string{
		"key":            func(*desk) []string { return []string{"--key", "keys/operator.key"} },
		"signer-command": func(*desk) []string { return []string{"--signer-command", os.Args[0] + " signer keys/operator.key"} },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, c, "metal-"+name)
			d.site("10")
			d.bridge(flags(d)...)
			for generation, value := range []string{"10", "20"} {
				d.site(value)
				d.status("it waits", publishedReason, is("WaitsForApproval"))
				plan := d.status("it has a plan", "{.status.plan}", func(plan string) bool { return plan != "" })
				if digest := d.dryRun(); plan != digest {
					t.Errorf("status.plan is %s, and a dry run says %s", plan, digest)
				}
				d.apply(fmt.Sprintf("apiVersion: caisson.dev/v1alpha1\nkind: PublishApproval\nmetadata: {name: of-%s}\nspec: {plan: %q, author: eve}\n", value, plan))
				d.status("it is published", publishedReason, is("Published"))
				d.status("it has a generation", "{.status.generation}", is(fmt.Sprint(generation+1)))
				d.holds()
			}
		})
	}
	t.Run("without-approval", func(t *testing.T) {
		d := newDesk(t, c, "metal-free")
		d.site("10")
		d.bridge("--key", "keys/operator.key", "--without-approval")
		d.status("it is published", "{.status.generation}", is("1"))
		d.site("20")
		d.status("it is published again", "{.status.generation}", is("2"))
		d.holds()
	})
	t.Run("no key", func(t *testing.T) {
		d := newDesk(t, c, "metal-none")
		d.site("10")
		d.bridge("--without-approval")
		d.status("nobody signs", publishedReason, is("NobodySigns"))
		if plan, digest := d.status("it has a plan", "{.status.plan}", func(plan string) bool { return plan != "" }), d.dryRun(); plan != digest {
			t.Errorf("status.plan is %s, and a dry run says %s", plan, digest)
		}
	})
}

// TestLongKilled: caisson-kube is killed by SIGKILL while it publishes, before or after one of its
// writes. The next process with the same memory publishes the same, once the reservation of the
// killed one is not renewed any more.
func TestLongKilled(t *testing.T) {
	require.Long(t)
	c := kubetest.Start(t)
	buildCaisson(t, t.TempDir())
	for name, at := range map[string]struct {
		tag   string
		after bool // it is killed once the registry has the write
	}{
		"reserved":           {"intent-", true},
		"before a node":      {"n1", false},
		"with a node":        {"n1", true},
		"before the index":   {"index", false},
		"with the index":     {"index", true},
		"before what counts": {"current", false},
		"with what counts":   {"current", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, c, "metal-"+strings.ReplaceAll(name, " ", "-"))
			d.patience = 10 * time.Minute
			kill := make(chan func(), 1)
			d.registry = killsAt(t, d.registry, at.tag, at.after, kill)
			flags := []string{"--key", "keys/operator.key", "--without-approval"}
			d.site("10")
			victim := d.bridge(flags...)
			d.status("it is published", "{.status.generation}", is("1"))
			kill <- func() { _ = victim.Process.Kill() } // it has ended by itself where this fails, and the wait says so
			d.site("20")
			if err := victim.Wait(); err == nil || victim.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v", err)
			}
			d.bridge(flags...)
			d.status("it is published", publishedReason, is("Published"))
			d.status("it is a later generation", "{.status.generation}", func(got string) bool { return got == "2" || got == "3" })
			d.holds()
			d.status("nothing is left to do", `{.status.conditions[?(@.type=="Planned")].message}`, is("1 node, nothing to publish"))
		})
	}
}

// killsAt is a registry in front of another. Once a function comes from kill it is called at the
// next write of a tag that begins so, before or after the registry behind it has that.
func killsAt(t *testing.T, behind, tag string, after bool, kill chan func()) string {
	host, path, _ := strings.Cut(behind, "/")
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	var mu sync.Mutex // nothing else is written meanwhile
	var do func()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		select {
		case do = <-kill:
		default:
		}
		_, name, put := strings.Cut(req.URL.Path, "/manifests/")
		due := do != nil && put && req.Method == http.MethodPut && strings.HasPrefix(name, tag)
		if due && !after {
			do()
			do = nil
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, req)
		if due {
			do()
			do = nil
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/" + path
}
