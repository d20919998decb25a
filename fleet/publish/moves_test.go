// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hold"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
)

// tags notes which nodes' tags are read, and refuses to move one.
type tags struct {
	mu     sync.Mutex
	read   map[string]bool
	refuse string
	now    time.Time
	busy   sync.RWMutex // held for reading by each request until its answer
}

func newTags(t *testing.T) (*tags, string) {
	s := &tags{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registrytest.WithReferrers(t)})
	proxy.ModifyResponse = func(r *http.Response) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.Header.Set("Date", s.now.Format(http.TimeFormat))
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.busy.RLock()
		defer s.busy.RUnlock()
		_, name, isNode := strings.Cut(q.URL.Path, "/"+oci.RepoNode+"/manifests/")
		s.mu.Lock()
		refused := isNode && q.Method == http.MethodPut && name == s.refuse
		if isNode && q.Method != http.MethodPut && strings.HasPrefix(name, "n") {
			s.read[name] = true
		}
		s.mu.Unlock()
		if refused {
			w.WriteHeader(http.StatusInsufficientStorage)
			return
		}
		proxy.ServeHTTP(w, q.WithContext(context.WithoutCancel(q.Context()))) // a request that was begun ends here, also where its sender left
	}))
	t.Cleanup(server.Close)
	return s, strings.TrimPrefix(server.URL, "http://")
}

// Who follows a publish that was cut reads the tags of the nodes that it may have moved, be it cut
// twice, and of no others; those that it moved get back what their rows say.
func TestWhoFollowsReadsWhatMayHaveMoved(t *testing.T) {
	f := newFleet(t)
	s, at := newTags(t)
	var err error
	f.Registry, err = registry.Open(at, registry.Options{PlainHTTP: true})
	must(t, err)
	f.NewFleet, f.Trust = true, &f.Policy
	f.Say = t.Logf
	values := slices.Repeat([]string{"10"}, 20)
	pass := func(refuse string) {
		s.busy.Lock() // a write of the pass before may have been left by who sent it
		defer s.busy.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		f.Now = f.Now.Add(time.Hour)
		s.now, s.read, s.refuse = f.Now, map[string]bool{}, refuse
	}
	publish := func(values []string) error {
		_, err := f.Publish(t.Context(), f.Policy, f.Nodes("", values...), Options{})
		return err
	}
	pass("")
	must(t, publish(values))
	f.NewFleet = false
	values[0], values[1] = "20", "20"
	for range 2 { // one of them moves, and the other one does not
		pass("n1")
		if err := publish(values); err == nil {
			t.Fatal("it came through")
		}
	}
	pass("")
	_, err = hold.Freeze(t.Context(), f.Publisher, hold.Order{Nodes: []string{"n5"}, By: By{Reason: "why"}})
	must(t, err)
	for name := range s.read {
		if name != "n0" && name != "n1" && name != "n5" {
			t.Errorf("the tag of %s was read, which nobody moved", name)
		}
	}
	if !s.read["n0"] || !s.read["n1"] {
		t.Errorf("read were %v: what was moved is not found", s.read)
	}
	if got := f.Values(); got != "10 10 10" {
		t.Errorf("nodes have %s", got)
	}
	f.IsGreen("10")
	is, err := f.Read(t.Context(), f.Policy)
	must(t, err)
	if moves := is.State().Index.Root.Moves; moves != nil {
		t.Errorf("nothing is under way, and the index names %v", moves)
	}
}

// A rollout of a million nodes has a plan: two maps by name, of forty characters each.
func TestAPlanHoldsAMillionNodes(t *testing.T) {
	const nodes = 1000
	plan := spec.RolloutPlan{Waves: []spec.Wave{{Nodes: map[string]string{}}}, Budget: &spec.RolloutBudget{Nodes: map[string]string{}}}
	for i := range nodes {
		name := fmt.Sprintf("%-40d", i)
		plan.Waves[0].Nodes[name], plan.Budget.Nodes[name] = oci.Digest([]byte(name)), fmt.Sprintf("rack-%05d", i)
	}
	raw, err := spec.Encode(plan)
	must(t, err)
	if len(raw)*1_000_000/nodes > published.MaxPlan {
		t.Errorf("%d bytes a node, %d are the most", len(raw)/nodes, published.MaxPlan/1_000_000)
	}
}
