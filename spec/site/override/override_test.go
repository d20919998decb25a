// SPDX-License-Identifier: Apache-2.0

package override

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
)

func labels(pairs ...string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// A node gets exactly one target: its host entry, else the last label entry that
// fits, else the default.
func TestChoose(t *testing.T) {
	p := New(module.Conf()[0])
	p.Hosts["a"] = &target{Name: "host:a"}
	p.Labels = []*target{{Name: "first", Label: "k", Values: []string{"v", "w"}}, {Name: "last", Label: "k", Values: []string{"v"}}}
	for _, tt := range []struct {
		node  string
		label func(string) (string, bool)
		want  string
	}{
		{"a", labels("k", "v"), "host:a"}, {"b", labels("k", "v"), "last"}, {"b", labels("k", "w"), "first"}, {"b", labels("k", "x"), "default"}, {"b", labels(), "default"},
	} {
		if got := p.Choose(tt.node, tt.label); got.Name != tt.want {
			t.Errorf("node %s gets %s, want %s", tt.node, got.Name, tt.want)
		}
	}
	p.Selector = [2]string{"run", "yes"}
	if got := p.Choose("a", labels("run", "no")); got != OffTarget {
		t.Errorf("a node that does not run the module gets %s", got.Name)
	}
	p.Selector, p.Off = [2]string{}, true
	if got := p.Choose("a", labels()); got != OffTarget {
		t.Errorf("of a module that is off, a node gets %s", got.Name)
	}
}

func TestOwners(t *testing.T) {
	p := New(&module.Module{Name: "mounts", Paths: []string{"/etc/x/60-caisson-*"}})
	shared := &module.Fragment{Owns: map[string]report.Pos{"/etc/data": {Line: 1}}}
	p.Def.Frag = shared
	p.Labels = []*target{{Frag: shared}, {Frag: &module.Fragment{Owns: map[string]report.Pos{"/srv": {}}}}, {}}
	var owned []string
	for path := range p.Owned() {
		owned = append(owned, path)
	}
	slices.Sort(owned)
	if !slices.Equal(owned, []string{"/etc/data", "/srv"}) {
		t.Errorf("owned %v", owned)
	}
	if !p.Always("/etc/x/60-caisson-a") || p.Always("/etc/x/a") || p.Always("/etc/x/60-caisson-a/b") {
		t.Error("patterns match the wrong paths")
	}
	for path, want := range map[string]string{"/etc/data/a/b": "/etc/data", "/etc/data": "", "/etc/database": "", "/": ""} {
		if got := p.Above(path); got != want {
			t.Errorf("above %s is %q, want %q", path, got, want)
		}
	}
}
