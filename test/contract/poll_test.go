// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"crypto"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
)

// An idle node asks a registry twice, and is told twice that nothing changed. A publish
// that changes other nodes renews fleet:current, and nothing else of what it reads.
func TestAnIdlePollIsTwoConditionalRequests(t *testing.T) {
	for name, place := range map[string]func(t *testing.T) (ref string, serve func() http.Handler){
		"docker-registry": func(t *testing.T) (string, func() http.Handler) {
			addr := registrytest.Distribution(t)
			return addr + "/metal-a", func() http.Handler {
				return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
			}
		},
		"caisson serve": func(t *testing.T) (string, func() http.Handler) {
			dir := t.TempDir()
			return "oci:" + dir, func() http.Handler {
				h, err := registry.Handler(dir)
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ref, serve := place(t)
			f := newPolled(t, ref)
			f.publish("10", "10")
			f.follow(serve())

			f.polls("node/manifests/n0 200", "fleet/manifests/current 200")
			for range 3 {
				f.polls("node/manifests/n0 304", "fleet/manifests/current 304")
			}
			f.publish("10", "20") // of the other node
			f.polls("node/manifests/n0 304", "fleet/manifests/current 200")
			f.polls("node/manifests/n0 304", "fleet/manifests/current 304")
			f.publish("30", "20")
			f.polls("node/manifests/n0 200", "fleet/manifests/current 200")
			f.polls("node/manifests/n0 304", "fleet/manifests/current 304")
			f.publish(strings.Repeat("8", oci.MaxInline), "20") // its blobs are not in the manifest
			f.polls("node/manifests/n0 200", "node/blobs 200", "node/blobs 200", "fleet/manifests/current 200")
			f.polls("node/manifests/n0 304", "fleet/manifests/current 304")
		})
	}
}

// polled is a fleet of two nodes, n0 and n1, and n0 that follows it.
type polled struct {
	t      *testing.T
	p      *publish.Publisher
	policy published.Policy
	node   *track.Tracker
	asked  []string // since the last poll
}

func newPolled(t *testing.T, ref string) *polled {
	t.Helper()
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return &polled{t: t,
		p:      &publish.Publisher{Reader: published.Reader{Registry: r, Signers: []crypto.Signer{key}, Now: time.Now().UTC().Truncate(time.Second), NewFleet: true, Say: t.Logf}},
		policy: published.Policy{Fleet: "metal-a", Threshold: 1, Lifetime: time.Hour, Operator: []sign.Verifier{sign.VerifierOf(key)}}}
}

// publish gives each node a file with a text.
func (f *polled) publish(texts ...string) {
	f.t.Helper()
	var nodes []publish.Node
	for i, text := range texts {
		o := &spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: fmt.Sprintf("n%d", i)},
			Items: spec.Items{Files: []spec.File{{Path: "/etc/motd", Content: text}}}}
		o.SetNeeds()
		nodes = append(nodes, publish.Node{Name: o.Node, Doc: func() ([]byte, error) { return spec.Encode(o) }})
	}
	f.p.Now = f.p.Now.Add(time.Second)
	if _, err := f.p.Publish(f.t.Context(), f.policy, nodes, publish.Options{}); err != nil {
		f.t.Fatal(err)
	}
}

// follow has n0 follow what is served, and notes what it asks for.
func (f *polled) follow(serve http.Handler) {
	f.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n := &noted{ResponseWriter: w, status: http.StatusOK}
		serve.ServeHTTP(n, q)
		what, _, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/v2/metal-a/"), "/sha256:")
		f.asked = append(f.asked, fmt.Sprint(what, " ", n.status))
	}))
	f.t.Cleanup(server.Close)
	from, err := pull.Open(oci.Ref{Host: strings.TrimPrefix(server.URL, "http://"), Prefix: "metal-a"}, pull.Options{PlainHTTP: true})
	if err != nil {
		f.t.Fatal(err)
	}
	folder, err := state.Open(f.t.TempDir())
	if err != nil {
		f.t.Fatal(err)
	}
	f.node = &track.Tracker{Source: from, Folder: folder, Identity: trust.Identity{Node: "n0"}, Say: f.t.Logf,
		Bootstrap: spec.Bootstrap{Fleet: "metal-a", Keys: []string{string(f.policy.Operator[0].PEM())}, Threshold: 1}}
}

// polls asks once, and compares the requests and their answers.
func (f *polled) polls(want ...string) {
	f.t.Helper()
	f.asked = nil
	found, err := f.node.Sync(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if found.Unconfirmed != "" {
		f.t.Errorf("nothing confirms the overlay: %s", found.Unconfirmed)
	}
	if !slices.Equal(f.asked, want) {
		f.t.Errorf("asked %q, want %q", f.asked, want)
	}
}

// noted is an answer whose status is looked at.
type noted struct {
	http.ResponseWriter
	status int
}

func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}
