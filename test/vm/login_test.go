// SPDX-License-Identifier: Apache-2.0

package vm

import (
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

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/leak"
	"github.com/caisson-os/caisson/test/registrytest"
)

// guarded is a registry behind TLS that wants a password once it has one. The zero password
// lets everybody in.
type guarded struct {
	mu       sync.Mutex
	password string
	let      int // requests with it
	refused  int // requests with another
}

// wants sets the password, and counts from here.
func (g *guarded) wants(password string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.password, g.let, g.refused = password, 0, 0
}

// counted returns how many requests came with the password, and with another.
func (g *guarded) counted() (let, refused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.let, g.refused
}

// may notes a request.
func (g *guarded) may(r *http.Request) bool {
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

// guard puts a registry at 127.0.0.1 behind TLS, and returns the address and the certificate.
func (g *guarded) guard(t *testing.T, registry string) (addr, ca string) {
	t.Helper()
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry})
	ca, key := registrytest.Certificate(t, t.TempDir(), net.IPv4(10, 0, 2, 100))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.may(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("Authorization")
		to.ServeHTTP(w, r)
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

// TestLongOwnLogin: a node reads its registry with a password that came as a secret, the loader
// too, and with the next one; where that is no longer good, with what it was installed with.
func TestLongOwnLogin(t *testing.T) {
	require.Long(t)
	g := &givenSecrets{dir: t.TempDir(), values: map[string]string{}}
	one, two, three := leak.Value()[:24], leak.Value()[:24], leak.Value()[:24]
	g.give(t, "pull", loginFile(one))
	g.Fleet = fleet(t, append(leanSite,
		"machine:\n", "secrets: {pull: {command: [cat, "+filepath.Join(g.dir, "pull")+"]}}\nmachine:\n  agent: {credentials: {registry: pull}}\n")...)
	var door guarded
	addr, ca := door.guard(t, g.registry)
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
		if let, refused := door.counted(); let == 0 || refused > 0 {
			t.Errorf("%s: %d requests with the password, %d with another", when, let, refused)
		}
	}
	g.must(t, "secrets", "accept", "site.yaml", "alpha", "--recipient", st.Recipient)
	g.publish(t)
	run(t, s, "sudo caisson-agent sync")
	had = status(t, s).Generation

	door.wants(one)
	g.give(t, "pull", loginFile(two)) // while the first is still good
	g.publish(t)
	run(t, s, "sudo caisson-agent sync")
	reads("with the first password")

	door.wants(two)
	g.give(t, "pull", loginFile(two)+"\n")
	g.publish(t)
	s = g.reboot(t, m, s)
	reads("by a loader, with the second password")
	if st := status(t, s); st.Source != spec.SourceFetched {
		t.Errorf("booted from what is %s", st.Source)
	}

	door.wants(three)
	file := "/var/lib/caisson/registry/auth.json"
	run(t, s, "printf %s '"+loginFile(three)+"' | sudo install -D -m 600 /dev/stdin "+file)
	run(t, s, "sudo caisson-agent sync")
	if st := status(t, s); st.Health != spec.HealthOK || st.Sync != spec.SyncCurrent {
		t.Errorf("with what it was installed with: %+v", st)
	}
	if let, refused := door.counted(); let == 0 || refused == 0 {
		t.Errorf("with what it was installed with: %d requests, after %d with the secret", let, refused)
	}
	for _, secret := range []string{one, two, three} {
		if strings.Contains(m.Console.String(), secret) {
			t.Error("the console has a password")
		}
	}
}
