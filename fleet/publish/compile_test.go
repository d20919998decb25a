// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// TestServicesFitTheirLayer: no node is sent a service whose user or package its layer
// has not; nodes without the service do not matter.
func TestServicesFitTheirLayer(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
layer: {base: {debian: {suite: trixie}}}
nodes: [{name: mon}, {name: web}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: mon}
spec: {match: {hosts: [mon]}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: prometheus}
spec: {nodes: [mon], user: USER, package: prometheus, git: {url: "file:///x", branch: main}, directories: [{from: a, to: /etc/a}]}
`
	has := []spec.InstalledPackage{{Name: "prometheus", Arch: "amd64"}}
	account := func(state string) []spec.Account { return []spec.Account{{Name: "prometheus", State: state}} }
	for what, c := range map[string]struct {
		user, node string
		layer      spec.Layer
		want       string
	}{
		"as it should be": {"prometheus", "mon", spec.Layer{Accounts: account("system"), Packages: has}, ""},
		"a person":        {"prometheus", "mon", spec.Layer{Accounts: account("active"), Packages: has}, ""},
		"Debian's own":    {"www-data", "mon", spec.Layer{Packages: has}, ""},
		"no user":         {"prometheus", "mon", spec.Layer{Packages: has}, "has no user prometheus"},
		"a user that was": {"prometheus", "mon", spec.Layer{Accounts: account("purged"), Packages: has}, "has no user prometheus"},
		"a group":         {"prometheus", "mon", spec.Layer{Accounts: account("system-group"), Packages: has}, "has no user prometheus"},
		"no package":      {"root", "mon", spec.Layer{Packages: []spec.InstalledPackage{{Name: "prometheus-x"}}}, "has no package prometheus"},
		"another node":    {"prometheus", "web", spec.Layer{}, ""},
	} {
		s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(strings.Replace(text, "USER", c.user, 1))}}, "site.yaml")
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		c.layer.Features = spec.Features()
		err := Fits(s, c.node, release.Layer{Described: trust.Described{Layer: c.layer}, Digest: "sha256:x"})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// TestLoadersOnlyRise: a loader takes the place of the one of its architecture, and never of
// one with its number or a higher one.
func TestLoadersOnlyRise(t *testing.T) {
	r := &Run{State: &published.State{}}
	of := func(arch string, number int64, image string) spec.Loader {
		return spec.Loader{Arch: arch, Number: number, Image: spec.Blob{Digest: image}}
	}
	for _, step := range []struct {
		l    spec.Loader
		good bool
	}{
		{of("amd64", 5, "a"), true}, {of("arm64", 3, "b"), true}, {of("amd64", 5, "a"), true}, {of("amd64", 5, "c"), false}, {of("amd64", 4, "d"), false}, {of("amd64", 6, "e"), true},
	} {
		if err := SetLoader(r, step.l); (err == nil) != step.good {
			t.Errorf("%+v: %v", step.l, err)
		}
	}
	if want := []spec.Loader{of("amd64", 6, "e"), of("arm64", 3, "b")}; !slices.Equal(r.State.Loaders, want) {
		t.Errorf("%+v, want %+v", r.State.Loaders, want)
	}
}

// A node whose identity is in doubt keeps its row, its overlay and its generation, whatever
// is published for others; nobody else can be given its identifiers meanwhile.
func TestKept(t *testing.T) {
	f := newFleet(t)
	nodes := func(values ...string) []Node { return f.Nodes("", values...) }
	f.MustPublish(nodes("1", "1", "1"), Options{})
	before, err := f.Index()
	must(t, err)
	kept := Options{Keep: func(name string) bool { return name == "n0" }}
	f.Now = f.Now.Add(time.Second)
	r := f.MustPublish(nodes("2", "2", "2")[1:], kept)
	if !slices.Equal(r.Kept, []string{"n0"}) || len(r.Left) != 0 || len(r.Published) != 2 {
		t.Errorf("%+v", r)
	}
	after, err := f.Index()
	must(t, err)
	if a, b := before.Nodes["n0"], after.Nodes["n0"]; a.Overlay != b.Overlay || a.Generation != b.Generation || a.Manifest != b.Manifest {
		t.Errorf("n0 had %+v and has %+v", a, b)
	}

	thief := nodes("3", "3", "3")[1:]
	thief[0].Match.MACs, thief[0].Doc = []string{"52:54:00:00:00:00"}, f.bound("n1", "52:54:00:00:00:00")
	f.Now = f.Now.Add(time.Second)
	r = f.MustPublish(thief, kept)
	if !slices.Equal(r.Kept, []string{"n0", "n1"}) || len(r.Published) != 1 || r.Published[0].Node != "n2" {
		t.Errorf("%+v", r)
	}

	f.Now = f.Now.Add(time.Second)
	kept.All = true
	if r = f.MustPublish(nodes("3", "3", "3")[1:], kept); !slices.Equal(r.Kept, []string{"n0"}) || len(r.Published) != 3 {
		t.Errorf("with --all it is %+v", r)
	}
	if bad := verdicts(t, f, f.Publisher); len(bad) > 0 {
		t.Errorf("%+v", bad)
	}

	f.Now = f.Now.Add(time.Second)
	if r = f.MustPublish(nodes("3", "3", "3")[1:], Options{}); len(r.Kept) != 0 || !slices.Equal(r.Left, []string{"n0"}) {
		t.Errorf("nobody keeps it: %+v", r)
	}
}
