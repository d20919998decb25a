// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

var start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

const nodes = 4

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := sign.Generate()
	must(t, err)
	return key
}

// source is a fleet with a chain of keys.
type source struct {
	*publish.Publisher
	t      testing.TB
	root   *ecdsa.PrivateKey
	policy published.Policy
	first  *chain.Chain // as boot files of version 1 have it
}

func newSource(t testing.TB) *source {
	t.Helper()
	reg, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
	must(t, err)
	s := &source{t: t, root: newKey(t), Publisher: &publish.Publisher{Reader: published.Reader{Registry: reg, Now: start, Say: func(string, ...any) {}, NewFleet: true}}}
	operator := newKey(t)
	s.Signers = []crypto.Signer{operator}
	s.policy = published.Policy{Site: true, Fleet: "metal-a", Threshold: 1, Lifetime: 30 * 24 * time.Hour, Operator: []sign.Verifier{sign.VerifierOf(operator)},
		Root: []sign.Verifier{sign.VerifierOf(s.root)}, RootThreshold: 1}
	one := spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: "metal-a", Version: 1, Roles: s.policy.Roles(), At: start}
	c, err := rotate.SignKeys(one, []crypto.Signer{s.root})
	must(t, err)
	s.first, err = chain.First(c)
	must(t, err)
	s.policy.Chain = s.first
	return s
}

// publish gives each node a value.
func (s *source) publish(value string) {
	s.t.Helper()
	var list []publish.Node
	for i := range nodes {
		o := spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i)}}
		o.Items = spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: value}}}
		doc, err := spec.Encode(o)
		must(s.t, err)
		list = append(list, publish.Node{Name: o.Node, Doc: func() ([]byte, error) { return doc, nil }})
	}
	s.Now = s.Now.Add(time.Minute)
	_, err := s.Publish(s.t.Context(), s.policy, list, publish.Options{})
	must(s.t, err)
}

// rotate has another operator count, and sign from now on.
func (s *source) rotate() {
	s.t.Helper()
	fresh := newKey(s.t)
	next := s.policy
	next.Operator = []sign.Verifier{sign.VerifierOf(fresh)}
	s.Signers, s.Now = []crypto.Signer{fresh}, s.Now.Add(time.Minute)
	c, _, err := rotate.Keys(s.t.Context(), s.Publisher, s.policy, rotate.Rotation{Next: spec.Keys{Roles: next.Roles(), At: s.Now}, Root: []crypto.Signer{s.root}})
	must(s.t, err)
	s.policy, s.policy.Chain = next, c
}

func (s *source) copyTo(to string) error {
	reg, err := registry.Open(to, registry.Options{PlainHTTP: true})
	must(s.t, err)
	m := &Mirror{From: &s.Reader, To: &published.Reader{Registry: reg, Now: s.Now, Say: s.Say}, Policy: &s.policy, Say: s.Say}
	_, err = m.Fleet(s.t.Context())
	return err
}

// boots says of each node whether it boots at a place by boot files of version 1: with the
// newest version there, or one that did not see it yet.
func (s *source) boots(at string, walks bool) (lost map[string]error) {
	reg, err := registry.Open(at, registry.Options{PlainHTTP: true})
	must(s.t, err)
	lost = map[string]error{}
	c := s.first.Fork()
	if walks {
		must(s.t, c.Walk(s.t.Context(), reg.Source(), func(chain.Link) error { return nil }))
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		candidate, err := trust.Overlay(s.t.Context(), reg.Source(), []string{name}, "")
		if err == nil {
			_, err = trust.All().Accept(candidate, c.Bootstrap(spec.Bootstrap{Fleet: "metal-a"}), trust.Identity{Node: name}, trust.Clock{RTC: s.Now}, trust.Known{})
		}
		if err != nil {
			lost[name] = err
		}
	}
	return lost
}

// overlays returns the digests that a place has for the nodes.
func (s *source) overlays(at string) map[string]string {
	reg, err := registry.Open(at, registry.Options{PlainHTTP: true})
	must(s.t, err)
	out := map[string]string{}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		candidate, err := trust.Overlay(s.t.Context(), reg.Source(), []string{name}, "")
		must(s.t, err)
		out[name] = oci.Digest(candidate.Document)
	}
	return out
}

// writes lets so many writes of a manifest through to a registry; -1 is all.
type writes struct {
	mu   sync.Mutex
	left int
}

func (w *writes) serve(t testing.TB, backend string) (at string) {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	proxy.ErrorLog = log.New(io.Discard, "", 0) // a copy that was cut ends its other requests
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/manifests/") {
			w.mu.Lock()
			cut := w.left == 0
			w.left = max(w.left-1, min(w.left, 0))
			w.mu.Unlock()
			if cut {
				out.WriteHeader(http.StatusInsufficientStorage) // which no client of a registry tries again
				return
			}
		}
		proxy.ServeHTTP(out, q)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// A node finds a version of the keys by the one before, and fleet:index what it names.
func TestOrder(t *testing.T) {
	got := sorted([]string{"current", "gen-0-10", "gen-0-9", "index", "keys-10", "keys-2", "keys-9", "rollout-a"})
	want := []string{"keys-2", "keys-9", "keys-10", "rollout-a", "gen-0-9", "gen-0-10", "index", "current"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A copy goes on across changes of keys, and one that is cut at any write is taken up. What is
// copied right after a rotation has every node boot at each moment, whichever version it
// knows. Where more was published since, each boots that has what was copied.
func TestCopyAcrossRotations(t *testing.T) {
	require.Slow(t)
	for _, further := range []bool{false, true} {
		t.Run(fmt.Sprintf("published since %v", further), func(t *testing.T) {
			w := &writes{left: -1}
			at := w.serve(t, registrytest.WithReferrers(t))
			s := newSource(t)
			s.publish("10")
			before := s.policy
			from := s.Publisher
			cuts := 0
			type state struct {
				policy published.Policy
				now    time.Time
			}
			old := state{before, s.Now}
			oldPlace := "oci:" + t.TempDir() // the fleet as it was before
			must(t, s.copyTo(oldPlace))
			s.rotate()
			if further {
				s.publish("20")
				s.rotate()
			}
			now := state{s.policy, s.Now}
			for n := 0; ; n++ {
				place := fmt.Sprintf("%s/copy-%d", at, n)
				reg, err := registry.Open(oldPlace, registry.Options{})
				must(t, err)
				earlier := *from
				earlier.Registry, earlier.Now = reg, old.now
				s.Publisher, s.policy = &earlier, old.policy
				must(t, s.copyTo(place))
				had := s.overlays(place)
				s.Publisher, s.policy, s.Now = from, now.policy, now.now

				w.mu.Lock()
				w.left = n
				w.mu.Unlock()
				cut := s.copyTo(place)
				w.mu.Lock()
				w.left = -1
				w.mu.Unlock()
				has := s.overlays(place)
				for _, walks := range []bool{true, false} {
					for name, err := range s.boots(place, walks) {
						if !further && (walks || cut != nil) || walks && has[name] != had[name] {
							t.Errorf("cut at write %d with %v: node %s, which follows the keys: %v: %v", n, cut, name, walks, err)
						}
					}
				}
				if cut == nil {
					break
				}
				cuts++
				must(t, s.copyTo(place))
				if lost := s.boots(place, true); len(lost) > 0 {
					t.Errorf("cut at write %d, and copied again: %v", n, lost)
				}
			}
			t.Logf("%d cuts", cuts)
			if cuts < 8 {
				t.Errorf("%d cuts: this shows little", cuts)
			}
		})
	}
}
