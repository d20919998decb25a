// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
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
	"github.com/caisson-os/caisson/fleet/verify"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// verdicts are those that are not "ok", by what they are of.
func verdicts(t *testing.T, f *fleet, p *Publisher) map[string]verify.Check {
	t.Helper()
	r, err := verify.Fleet(t.Context(), &p.Reader, f.Policy, nil, false)
	must(t, err)
	bad := map[string]verify.Check{}
	for _, c := range r.Findings {
		if c.Verdict != "ok" {
			bad[c.What] = c
		}
	}
	return bad
}

// tag moves a tag to what another leads to.
func (f *fleet) tag(repo, tag, to string) {
	f.T.Helper()
	raw, _, err := f.Registry.Manifest(f.T.Context(), repo, to)
	must(f.T, err)
	_, err = f.Registry.PutManifest(f.T.Context(), repo, oci.MediaTypeManifest, raw, tag)
	must(f.T, err)
}

// Who can push can move tags to what operators once signed: nodes take it as far as
// their floor lets them, a publisher that verifies sees it.
func TestVerifyFindsMovedTags(t *testing.T) {
	const mac = "mac-525400000000"
	for what, c := range map[string]struct {
		move    func(f *fleet, first, renewed string)
		finding string
		verdict string
		detail  string
	}{
		"an older fleet:index": {
			func(f *fleet, _, _ string) { f.tag(oci.RepoFleet, "index", "gen-0-1") }, "node:n0", "contradiction", "gave out no later one than 1"},
		"a node's tag, back": {
			func(f *fleet, first, _ string) { f.tag(oci.RepoNode, "n0", first) }, "node:n0", "rollback", "generation 1, the index says 2"},
		"a node's tag, to an earlier signature of the same": {
			func(f *fleet, _, renewed string) { f.tag(oci.RepoNode, "n0", renewed) }, "node:n0", "contradiction", "another signature of generation 2"},
		"a machine's tag, to another node": {
			func(f *fleet, _, _ string) { f.tag(oci.RepoNode, mac, "n1") }, "node:n0", "contradiction", "node:" + mac + " leads to"},
		"a machine's tag, back": {
			func(f *fleet, first, _ string) { f.tag(oci.RepoNode, mac, first) }, "node:n0", "contradiction", "node:" + mac + " leads to"},
		"a machine's tag, away": {
			func(f *fleet, _, _ string) { must(f.T, f.Registry.Untag(f.T.Context(), oci.RepoNode, mac)) }, "node:n0", "missing", "node:" + mac},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t)
			row := func() string {
				x, err := f.Index()
				must(t, err)
				return x.Nodes["n0"].Manifest
			}
			f.MustPublish(f.Nodes("", "10", "10"), Options{})
			first := row()
			f.Now = f.Now.Add(time.Second)
			f.MustPublish(f.Nodes("", "20", "10"), Options{})
			second := row()
			f.Now = f.Now.Add(25 * 24 * time.Hour)
			_, err := f.Refresh(t.Context(), Lists{})
			must(t, err)
			if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
				t.Fatalf("as published: %+v", bad)
			}
			p := *f.Publisher
			p.Memory = nil // somebody who never looked before
			c.move(f, first, second)
			got := verdicts(t, f, &p)[c.finding]
			if got.Verdict != c.verdict || !strings.Contains(got.Detail, c.detail) {
				t.Errorf("%q, %q; want %q, %q", got.Verdict, got.Detail, c.verdict, c.detail)
			}
		})
	}
}

// A machine that another node has by now, while a held one is still bound to it, is well.
func TestVerifyOfAMachineThatTwoHave(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10"), Options{})
	_, err := hold.Freeze(t.Context(), f.Publisher, hold.Order{By: By{Reason: "x"}, All: true})
	must(t, err)
	nodes := f.Nodes("", "20", "20") // n0 is held, n1 gets its card
	nodes[1].Match = nodes[0].Match
	nodes[1].Doc = f.bound("n1", nodes[0].Match.MACs...)
	f.MustPublish(nodes, Options{})
	if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

// While somebody publishes, verify says so of what is moved already, and by whom; when he
// died, what to do. What is published is never called moved.
func TestVerifyBesidePublish(t *testing.T) {
	f := newFleet(t)
	backend := registrytest.WithReferrers(t)
	at := func(ref string) *Publisher {
		p := f.at(t, ref)
		p.Author = "eve@host"
		return p
	}
	watcher := at(backend + "/metal-a")
	_, err := watcher.Publish(t.Context(), f.Policy, f.Nodes("", "1", "1"), Options{})
	must(t, err)
	var during []map[string]verify.Check
	var mu sync.Mutex
	p := at(through(t, backend, func(q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/manifests/") && !isIntent(q) {
			during = append(during, verdicts(t, f, watcher))
		}
	}))
	_, err = p.Publish(t.Context(), f.Policy, f.Nodes("", "2", "2"), Options{})
	must(t, err)
	seen := map[string]bool{}
	for _, bad := range during {
		for what, c := range bad {
			seen[what] = true
			if c.Verdict != "unfinished" || what == "fleet:index" && c.Detail != "generation 2 is being published, by eve@host: look again when it is done" {
				t.Errorf("%+v", c)
			}
		}
	}
	if !seen["fleet:index"] || !seen["node:n0"] && !seen["node:n1"] {
		t.Errorf("nothing was seen of the publish: %v", seen)
	}
	if bad := verdicts(t, f, watcher); len(bad) > 0 {
		t.Errorf("afterwards: %+v", bad)
	}

	// One that is cut after its nodes.
	isIndex := func(q *http.Request) bool {
		return q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/fleet/manifests/gen-")
	}
	p = at(cut(t, backend, isIndex) + "/metal-a")
	if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "3", "3"), Options{}); err == nil {
		t.Fatal("it was not cut")
	}
	standing, err := reservations(t, watcher)
	must(t, err)
	for _, tag := range standing { // its time is over
		must(t, watcher.Registry.Untag(t.Context(), oci.RepoFleet, tag))
	}
	bad := verdicts(t, f, watcher)
	if c := bad["fleet:index"]; len(bad) < 2 || c.Verdict != "unfinished" || c.Detail != "a publish of generation 3 was cut: run 'caisson publish' again, or 'caisson refresh', which gives its nodes back what they had" {
		t.Errorf("%+v", bad)
	}
}

// A publish that ends between the look at the index and that at the nodes is not a finding.
func TestVerifyLooksAgain(t *testing.T) {
	f := newFleet(t)
	backend := registrytest.WithReferrers(t)
	other := f.at(t, backend+"/metal-a")
	_, err := other.Publish(t.Context(), f.Policy, f.Nodes("", "1"), Options{})
	must(t, err)
	var once sync.Once
	p := f.at(t, through(t, backend, func(q *http.Request) {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/node/manifests/n0") {
			once.Do(func() {
				_, err := other.Publish(t.Context(), f.Policy, f.Nodes("", "2"), Options{})
				must(t, err)
			})
		}
	}))
	r, err := verify.Fleet(t.Context(), &p.Reader, f.Policy, nil, false)
	if err != nil || !r.OK() || r.Generation != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestARefreshAfterTheFirstPublishWasCut: there is nothing that nodes could get again.
func TestARefreshAfterTheFirstPublishWasCut(t *testing.T) {
	f := newFleet(t)
	backend := registrytest.WithReferrers(t)
	p := f.at(t, cut(t, backend, func(q *http.Request) bool {
		return q.Method == http.MethodPut && strings.Contains(q.URL.Path, "/fleet/manifests/gen-")
	})+"/metal-a")
	if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "3"), Options{}); err == nil {
		t.Fatal("it was not cut")
	}
	q := f.at(t, backend+"/metal-a")
	standing, err := reservations(t, q)
	must(t, err)
	for _, tag := range standing { // its time is over
		must(t, q.Registry.Untag(t.Context(), oci.RepoFleet, tag))
	}
	if _, err := q.Refresh(t.Context(), Lists{}); !errors.Is(err, published.ErrUnpublished) {
		t.Errorf("refresh: %v", err)
	}
	r, err := q.Publish(t.Context(), f.Policy, f.Nodes("", "3"), Options{})
	if err != nil || r.Generation != 2 {
		t.Errorf("the publish after it: %+v, %v", r, err)
	}
}

// cut returns a way to a registry on which nothing arrives any more once gone says so. It
// answers, with what is not asked again: that spares the test the pauses between.
func cut(t *testing.T, backend string, gone func(q *http.Request) bool) string {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	var mu sync.Mutex
	over := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		over = over || gone(q)
		refused := over
		mu.Unlock()
		if refused {
			http.Error(w, "", http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// A retirement that is killed between any two writes is done by doing it again: no row, no
// tag and no tag of a machine is left of the nodes, the others have what they had, and
// nobody finds a node half there that nobody retires. So is a hold.
func TestRetireCutAnywhere(t *testing.T) {
	require.Slow(t)
	servers(t, func(t *testing.T, backend string) {
		step := 1
		if strings.HasPrefix(t.Name(), "TestRetireCutAnywhere/docker") {
			step = 24 // it is slow
		}
		for writes := 0; ; writes += step {
			f := newFleet(t)
			at := backend + "/cut-" + string(rune('a'+writes/26)) + string(rune('a'+writes%26))
			p := f.at(t, at)
			_, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "1", "1", "1"), Options{})
			must(t, err)
			nodes := f.Nodes("", "1", "1", "1")
			_, err = p.Publish(t.Context(), f.Policy, []Node{nodes[0], nodes[2]}, Options{}) // n1 left the site
			must(t, err)

			left := writes
			ref := cut(t, backend, func(q *http.Request) bool {
				if q.Method != http.MethodGet && q.Method != http.MethodHead {
					left--
				}
				return left < 0
			}) + strings.TrimPrefix(at, backend)
			_, killed := f.at(t, ref).Retire(t.Context(), []string{"n0", "n1"}, By{})
			standing, err := reservations(t, p)
			must(t, err)
			for _, tag := range standing {
				p.IgnoreIntent = tag // of a publisher that is known to be dead
			}
			p.Now = p.Now.Add(5 * time.Second)
			result, err := p.Retire(t.Context(), []string{"n0", "n1"}, By{})
			if err != nil && !strings.Contains(err.Error(), "is not published") {
				t.Fatalf("cut after %d writes: %v", writes, err)
			}
			if err == nil && result.Unchanged != 1 {
				t.Errorf("cut after %d writes: %+v", writes, result)
			}
			f.Registry = p.Registry
			v, err := p.Open(t.Context(), f.Policy, published.Purpose{})
			must(t, err)
			rows, err := v.Nodes(t.Context())
			must(t, err)
			tags, err := p.Registry.Tags(t.Context(), oci.RepoNode)
			must(t, err)
			tags = slices.DeleteFunc(tags, published.IsShard)
			if len(rows) != 1 || rows["n2"].Overlay == "" || !slices.Equal(tags, []string{"mac-525400000002", "n2"}) {
				t.Fatalf("cut after %d writes: rows %v, tags %v", writes, rows, tags)
			}
			if bad := verdicts(t, f, p); len(bad) > 0 {
				t.Errorf("cut after %d writes: %+v", writes, bad)
			}
			if killed == nil {
				if writes < 10 {
					t.Errorf("a retirement has %d writes", writes)
				}
				return
			}
		}
	})
}

// A rollback does not wait for somebody who has the site: it puts right what a publish that
// was cut left with the other nodes.
func TestAHoldHealsACutPublish(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "10", "10"), Options{})
	f.cut()
	f.Now = f.Now.Add(time.Second)
	r, err := hold.Freeze(t.Context(), f.Publisher, hold.Order{By: By{Reason: "x"}, Nodes: []string{"n1"}})
	must(t, err)
	if r.Generation != 3 || len(r.Published) != 1 || r.Published[0].Node != "n0" || r.Unchanged != 0 || len(r.Held) != 1 {
		t.Errorf("%+v", r)
	}
	f.MustBoot(3, "")
	if a, err := f.Boot(); err != nil || a.Overlay.Items.Sysctl[0].Value != "10" {
		t.Errorf("the node has what a cut publish gave it: %+v, %v", a, err)
	}
	if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}
}

// What is counted is counted once: a node that had left, one that is named twice, one that
// is gone already.
func TestRetireCounts(t *testing.T) {
	f := newFleet(t)
	f.MustPublish(f.Nodes("", "1", "1", "1", "1"), Options{})
	nodes := f.Nodes("", "1", "1", "1", "1")
	f.MustPublish(nodes[1:], Options{}) // n0 left the site
	r, err := f.Retire(t.Context(), []string{"n1", "n0", "n1", "n9"}, By{})
	if err != nil || !slices.Equal(r.Left, []string{"n0", "n1"}) || r.Unchanged != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := f.Retire(t.Context(), []string{"n0", "n9"}, By{}); err == nil || !strings.Contains(err.Error(), "is not published") {
		t.Errorf("nothing is left of them: %v", err)
	}
	// On a registry that deletes nothing, a name leads to what says that it is gone.
	gone := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeGone,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{}, Annotations: map[string]string{oci.AnnotationGone: "n0"}})
	_, err = f.Registry.PutManifest(t.Context(), oci.RepoNode, oci.MediaTypeManifest, gone, "n0")
	must(t, err)
	if _, err := f.Retire(t.Context(), []string{"n0"}, By{}); err == nil || !strings.Contains(err.Error(), "is not published") {
		t.Errorf("it is gone: %v", err)
	}
}
