// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/leak"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// reportsBelow is where nodes put reports, on the registry that they read.
const reportsBelow = "metal-reports"

// guarded is a registry behind TLS: who reads it shows a password, and who puts reports into
// it another one.
type guarded struct{ reads, reports gate }

// gate wants a password once it has one. The zero password lets everybody in.
type gate struct {
	mu       sync.Mutex
	password string
	let      int // requests with it
	refused  int // requests with another
}

// wants sets the password, and counts from here.
func (g *gate) wants(password string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.password, g.let, g.refused = password, 0, 0
}

// counted returns how many requests came with the password, and with another.
func (g *gate) counted() (let, refused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.let, g.refused
}

// may notes a request.
func (g *gate) may(r *http.Request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, shown, has := r.BasicAuth()
	switch {
	case g.password == "" || has && shown == g.password:
		g.let++
		return true
	case has:
		g.refused++
	}
	return false
}

// guard puts two registries at 127.0.0.1 behind TLS, as one: that of the fleet and that of its
// reports. It returns the address and the certificate.
func (g *guarded) guard(t *testing.T, fleet, reports string) (addr, ca string) {
	t.Helper()
	ca, key := registrytest.Certificate(t, t.TempDir(), net.IPv4(10, 0, 2, 100))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gate, to := &g.reads, fleet
		if strings.Contains(r.URL.Path, "/"+reportsBelow+"/") {
			gate, to = &g.reports, reports
		}
		if !gate.may(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		r.Header.Set("X-Forwarded-Proto", "https") // where it says that uploads go
		httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to}).ServeHTTP(w, r)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.ServeTLS(listener, ca, key) // until it is closed
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String(), ca
}

// loginFile is a config.json of docker's.
func loginFile(password string) string {
	return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, guestRegistry, base64.StdEncoding.EncodeToString([]byte("node:"+password)))
}

// isReported wants a report of this boot in a registry, and returns it.
func isReported(t *testing.T, s *machine.Session, store string) []byte {
	t.Helper()
	boot := strings.TrimSpace(run(t, s, "cat /proc/sys/kernel/random/boot_id"))
	var (
		said *spec.Report
		err  error
	)
	for range 120 {
		if said, err = reported(t.Context(), store, "alpha"); err == nil && said.BootID == boot {
			data, err := spec.Encode(said)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		time.Sleep(5 * time.Second) // the node sends it when it does
	}
	t.Errorf("no report of boot %s: %+v, %v\n%s", boot, said, err, run(t, s, "sudo caisson-agent report; sudo journalctl -b -u caisson-agent --no-pager | tail -40"))
	return nil
}

// reported returns the last report that a node has put into a registry.
func reported(ctx context.Context, store, node string) (*spec.Report, error) {
	r, err := registry.Open(store+"/"+reportsBelow, registry.Options{PlainHTTP: true})
	if err != nil {
		return nil, err
	}
	resp, err := r.Source().Manifest(ctx, oci.RepoReport, node, "")
	if err != nil {
		return nil, err
	}
	raw, _, err := oci.ReadDocument(ctx, r.Source(), resp, oci.Artifact{Repo: oci.RepoReport, Type: oci.TypeReport, Limit: sign.MaxReport})
	if err != nil {
		return nil, err
	}
	data, _, err := sign.OpenReport(raw)
	if err != nil {
		return nil, err
	}
	return spec.DecodeReport(data)
}

// TestLongOwnLogin: a node reads its registry with a password that came as a secret, the loader
// too, and with the next one; where that is no longer good, with what it was installed with. It
// puts reports there with another secret. Then no password is anywhere but where it must be.
func TestLongOwnLogin(t *testing.T) {
	require.Long(t)
	g := &givenSecrets{dir: t.TempDir(), values: map[string]string{}}
	one, two, three, writes := leak.Value()[:24], leak.Value()[:24], leak.Value()[:24], leak.Value()[:24]
	g.values["first password"], g.values["second password"], g.values["password for reports"] = one, two, writes // also by themselves
	g.give(t, "pull", loginFile(one))
	g.give(t, "push", loginFile(writes))
	g.Fleet = fleet(t, append(leanSite,
		"machine:\n", "secrets: {pull: {command: [cat, "+filepath.Join(g.dir, "pull")+"]}, push: {command: [cat, "+filepath.Join(g.dir, "push")+"]}}\nmachine:\n"+
			"  agent: {metrics: {listen: \"127.0.0.1:9469\"}, credentials: {registry: pull, report: push}, report: {registry: \""+guestRegistry+"/"+reportsBelow+"\", interval: 1h}}\n")...)
	var door guarded
	door.reports.wants(writes)
	store := registrytest.Distribution(t)
	addr, ca := door.guard(t, g.registry, store)
	g.must(t, "netboot", "site.yaml", "--from", g.To(), "--out", "netboot", "--registry", g.guest(), "--ca", ca, "--http-url", "http://"+guestHTTP)
	o := g.byHand(t, g.withDisk(t))
	o.Forwards[guestRegistry] = addr
	m := g.start(t, o)
	s := g.login(t, m)
	st := status(t, s)
	if st.Health != spec.HealthOK || st.Recipient == "" {
		t.Fatalf("from an open registry: %+v", st)
	}
	had := st.Generation
	// reads wants the node to have read what was published since, with one password alone.
	reads := func(when string) {
		t.Helper()
		st := status(t, s)
		if st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent || st.Generation <= had {
			t.Errorf("%s, after generation %d: %+v", when, had, st)
		}
		had = st.Generation
		if let, refused := door.reads.counted(); let == 0 || refused > 0 {
			t.Errorf("%s: %d requests with the password, %d with another", when, let, refused)
		}
	}
	g.must(t, "secrets", "accept", "site.yaml", "alpha", "--recipient", st.Recipient)
	g.publish(t)
	run(t, s, "sudo caisson-agent sync")
	had = status(t, s).Generation

	door.reads.wants(one)
	g.give(t, "pull", loginFile(two)) // while the first is still good
	g.publish(t)
	run(t, s, "sudo caisson-agent sync")
	reads("with the first password")

	door.reads.wants(two)
	g.give(t, "pull", loginFile(two)+"\n")
	g.publish(t)
	s = g.reboot(t, m, s)
	sample(t, s)
	reads("by a loader, with the second password")
	if st := status(t, s); st.Source != spec.SourceFetched {
		t.Errorf("booted from what is %s", st.Source)
	}
	isReported(t, s, store)
	if let, refused := door.reports.counted(); let == 0 || refused > 0 {
		t.Errorf("%d requests with the password for reports, %d with another", let, refused)
	}

	door.reads.wants(three)
	file := "/var/lib/caisson/registry/auth.json"
	run(t, s, "printf %s '"+loginFile(three)+"' | sudo install -D -m 600 /dev/stdin "+file)
	run(t, s, "sudo caisson-agent sync")
	if st := status(t, s); st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent {
		t.Errorf("with what it was installed with: %+v", st)
	}
	if let, refused := door.reads.counted(); let == 0 || refused == 0 {
		t.Errorf("with what it was installed with: %d requests, after %d with the secret", let, refused)
	}
	g.none(t, "what is reported", isReported(t, s, store))
	g.seek(t, s, m)
	run(t, s, "sync")
	m.PowerCut()
	g.everywhere(t, st.Recipient)
	if strings.Contains(m.Console.String(), three) { // on the disk somebody has put it there
		t.Error("the console has the password that was installed")
	}
}
