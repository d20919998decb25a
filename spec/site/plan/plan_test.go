// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/compare"
)

// start is a site whose parts the tests change by replacing text.
func start(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func siteOf(t *testing.T, text string) *site.Site {
	t.Helper()
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// hold compares a result with its golden file.
func hold(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n--- got\n%s--- want\n%s", file, got, want)
	}
}

// built is a registry in which every layer that was built is still current.
type built map[string]*Layer

func (b built) Published(digest string) *Layer { return b[digest] }

func (b built) Fetch(from, to *Layer) int64 {
	if from == nil {
		return 1000
	}
	return 10
}

func (b built) Next(v site.Variant) *Layer {
	for _, l := range b {
		if l.Variant == v.Name {
			return l
		}
	}
	return nil
}

// planAll plans all nodes at once.
func planAll(s *site.Site, published map[string]*spec.Overlay, layers built) *Plan {
	p := New(s, layers)
	for _, n := range s.Nodes() {
		p.Add(n.Name, published[n.Name])
	}
	for name := range published {
		if !s.Fleet().Has(name) {
			p.Gone(name)
		}
	}
	return p.Plan()
}

// publish returns the overlays that the nodes would have been sent.
func publish(t *testing.T, s *site.Site) (map[string]*spec.Overlay, built) {
	t.Helper()
	overlays, layers := map[string]*spec.Overlay{}, built{}
	if s.HasLayer() {
		vs, err := s.Variants()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vs {
			digest := "sha256:" + strings.Repeat(v.Name[:1], 64)
			l := &Layer{Digest: digest, Made: v.Recipe, Layer: spec.Layer{Arch: "amd64", Variant: v.Name, Recipe: "sha256:" + site.RecipeID(v.Recipe), Kernel: spec.KernelBlob{Release: "6.12.1-cloud-amd64"},
				Images: []spec.Image{{Name: "base"}, {Name: spec.ImageAccounts}}}}
			for _, p := range v.Recipe.Packages.Install {
				l.Packages = append(l.Packages, spec.InstalledPackage{Name: p.Name, Version: "1"})
			}
			for i, u := range v.Recipe.Accounts.Users {
				l.Accounts = append(l.Accounts, spec.Account{Name: u.Name, UID: 1000 + i, State: "active"})
			}
			layers[digest] = l
			for _, n := range v.Nodes {
				overlays[n] = overlayOf(t, s, n, digest)
				overlays[n].Variant = v.Name
			}
		}
		return overlays, layers
	}
	for _, n := range s.Nodes() {
		overlays[n.Name] = overlayOf(t, s, n.Name, "")
	}
	return overlays, layers
}

func overlayOf(t *testing.T, s *site.Site, node, layer string) *spec.Overlay {
	t.Helper()
	o, err := s.Overlay(node, layer)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPlan(t *testing.T) {
	tests := []struct {
		name     string
		old, new string // replaced in base
		class    map[string]string
	}{
		{"nothing", "", "", map[string]string{"a": "none", "b": "none", "c": "none"}},
		{"sysctl", "vm.swappiness: 10", "vm.swappiness: 20", map[string]string{"a": "live", "b": "live", "c": "none"}},
		{"sysctl-gone", ", kernel.panic: 5", ", kernel.core_pattern: ''", map[string]string{"a": "live", "c": "live"}},
		{"override", "swappiness: 1}", "swappiness: 2}", map[string]string{"a": "none", "c": "live"}},
		{"ethtool", "tso: off", "tso: on", map[string]string{"a": "live"}},
		{"limit", "value: 1024", "value: 2048", map[string]string{"a": "live"}},
		{"mount-options", "size=1m", "size=2m", map[string]string{"a": "service restart"}},
		{"swap-added", "    data:", "    more: {mnt_tgt: none, device: LABEL=swap, type: swap}\n    data:", map[string]string{"a": "live"}},
		{"password", "users: [{user_name: admin, user_sudo: true}]", "users: [{user_name: admin, user_sudo: true, user_crypt_passwd: {secret: admin}}]", map[string]string{"a": "live"}},
		{"mount-added", "    data:", "    more: {mnt_tgt: /srv/more, device: tmpfs, type: tmpfs}\n    data:", map[string]string{"a": "live"}},
		{"exec", "never, data", "always, data", map[string]string{"a": "live"}},
		{"perm-on-node", "0750", "0700", map[string]string{"a": "live"}},
		{"perm-in-layer", "0644", "0444", map[string]string{"a": "reboot"}},
		{"dns", "192.0.2.53", "192.0.2.54", map[string]string{"a": "reboot"}},
		{"persist", "[/home]", "[/home, /var/log]", map[string]string{"a": "reboot"}},
		{"kernel-args", "[quiet]", "[quiet, hugepages=4]", map[string]string{"a": "kexec"}},
		{"kernel-package", "linux-image-cloud-amd64", "linux-image-amd64", map[string]string{"a": "kexec"}},
		{"package", "name: jq}", "name: jq}, {name: tree}", map[string]string{"a": "reboot"}},
		{"user-leaves", "users: [{user_name: admin, user_sudo: true}]", "users: []", map[string]string{"a": "live"}},
		{"ssh-key", "users: [{user_name: admin, user_sudo: true}]", "users: [{user_name: admin, user_sudo: true, user_sshkeys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEtkwuGyTVlUvWcrwCCxr9kBnOgqJJaWkZcRIlZmHQzU a]}]", map[string]string{"a": "live"}},
		{"address", "network: {", "machine:\n  overrides: {hosts: [{name: b, conf: {network: {interfaces: [{name: eth0, addresses: [192.0.2.7/24]}]}}}]}\nnetwork: {", map[string]string{"a": "none", "b": "reboot"}},
		{"match", "00:01", "00:02", map[string]string{"a": "none", "b": "none"}},
		{"node-added", "  - {name: b,", "  - {name: d}\n  - {name: b,", map[string]string{"d": "cold", "a": "none"}},
		{"node-gone", "  - {name: b, labels: {role: web}}\n", "", map[string]string{"a": "none", "b": "none"}},
		{"variant", "  overrides:\n", "  overrides:\n    divingbell_apt: {hosts: [{name: c, conf: {apt: {packages: [{name: tree}]}}}]}\n", map[string]string{"a": "none", "c": "reboot"}},
	}
	before := siteOf(t, start(t))
	overlays, layers := publish(t, before)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(start(t), tt.old, tt.new, 1)
			if text == start(t) && tt.name != "nothing" {
				t.Fatalf("%q is not in the base", tt.old)
			}
			p := planAll(siteOf(t, text), overlays, layers)
			got := map[string]string{}
			for _, n := range p.Nodes {
				got[n.Name] = n.Class
				for _, c := range n.Changes {
					if spec.Worse(c.Class, n.Class) {
						t.Errorf("%s: class %s but a change of class %s", n.Name, n.Class, c.Class)
					}
				}
			}
			for n, class := range tt.class {
				if got[n] != class {
					t.Errorf("node %s: class %q, want %q", n, got[n], class)
				}
			}
			if p.Changed() != (tt.name != "nothing") {
				t.Errorf("Changed() = %v", p.Changed())
			}
			var b strings.Builder
			p.Write(&b)
			hold(t, tt.name+".txt", b.String())
		})
	}
}

// A plan must not be silent about a difference in bytes.
func TestPlanSeesEveryDifference(t *testing.T) {
	s := siteOf(t, start(t))
	published, layers := publish(t, s)
	for what, change := range map[string]func(*spec.Overlay){
		"mount id":     func(o *spec.Overlay) { o.Items.Mounts[0].ID = "other" },
		"perm missing": func(o *spec.Overlay) { o.Items.Perm.IgnoreMissing = true },
		"optional":     func(o *spec.Overlay) { o.Items.Sysctl[0].Optional = true },
		"on expired":   func(o *spec.Overlay) { o.OnExpired = "hold" },
		"exec env":     func(o *spec.Overlay) { o.Items.Exec[0].Env = map[string]string{"A": "b"} },
		"mount after":  func(o *spec.Overlay) { o.Items.Mounts[0].After = []string{"x.service"} },
		"search":       func(o *spec.Overlay) { o.Network.Search = []string{"example.org"} },
		"gates":        func(o *spec.Overlay) { o.Gates = &spec.Gates{Checks: []spec.HealthCheck{{Name: "a", TCP: "a:1"}}} },
		"ca":           func(o *spec.Overlay) { o.CAs = []string{"x"} },
	} {
		data, err := spec.Encode(published["a"])
		if err != nil {
			t.Fatal(err)
		}
		var o spec.Overlay
		if err := spec.Decode(data, &o); err != nil {
			t.Fatal(err)
		}
		change(&o)
		p := planAll(s, map[string]*spec.Overlay{"a": &o, "b": published["b"], "c": published["c"]}, layers)
		if len(p.Nodes[0].Changes) != 1 {
			t.Errorf("%s: changes = %+v, want one", what, p.Nodes[0].Changes)
		}
	}
}

// The loader is given what all nodes share; only the others need a second kernel.
func TestKernelArgsAreWhatAllShare(t *testing.T) {
	s, report := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(`apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: f}
registry: registry.example.org/f
layer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: linux-image-amd64, args: [quiet]}}
nodes: [{name: a, labels: {r: x}}, {name: b}]
machine:
  kernel: {args: [mitigations=auto]}
  overrides: {labels: [{label: {key: r, values: [x]}, conf: {kernel: {args: [mitigations=auto, isolcpus=2]}}}]}
`)}}, "site.yaml")
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"quiet", "mitigations=auto"}, s.Bootstrap().KernelArgs); diff != "" {
		t.Error(diff)
	}
}

// A row of the index settles only what is as it was published.
func TestPlanByRow(t *testing.T) {
	s := siteOf(t, start(t))
	overlays, layers := publish(t, s)
	digest := func(node string) string {
		data, err := spec.Encode(overlays[node])
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	}
	p := New(s, layers)
	for _, node := range []string{"a", "b"} {
		if !p.AddRow(node, digest(node), overlays[node].Layer) {
			t.Errorf("%s is as published, and is not taken as such", node)
		}
	}
	overlays["c"].Items.Limits = nil
	if p.AddRow("c", digest("c"), overlays["c"].Layer) {
		t.Error("c differs, and its row settles it")
	}
	p.Add("c", overlays["c"])
	if p.AddRow("d", digest("a"), overlays["a"].Layer) {
		t.Error("a node that the site does not have is planned")
	}
	if p.AddRow("a", digest("a"), "sha256:unknown") {
		t.Error("a layer that cannot be read settles it")
	}
	plan := p.Plan()
	if len(plan.Nodes) != 3 || len(plan.Nodes[0].Changes)+len(plan.Nodes[1].Changes) != 0 || len(plan.Nodes[2].Changes) != 1 {
		t.Errorf("plan = %+v", plan.Nodes)
	}

	// Another recipe is a change although the overlay is the same.
	edited := siteOf(t, strings.Replace(start(t), "name: jq}", "name: tree}", 1))
	p = New(edited, layers)
	if !p.AddRow("a", digest("a"), overlays["a"].Layer) {
		t.Error("a's overlay is as published")
	}
	if plan := p.Plan(); len(plan.Nodes) != 1 || plan.Nodes[0].Class == spec.ClassNone || !plan.Changed() {
		t.Errorf("plan = %+v", plan.Nodes)
	}
}

// TestLayers compares what is there, not recipes, and says nothing that is not so.
func TestLayers(t *testing.T) {
	user := func(name string, change ...func(*spec.User)) spec.User {
		u := spec.User{Name: name, Sudo: true, Password: "$y$old", Keys: []string{"ssh-ed25519 A"}}
		for _, f := range change {
			f(&u)
		}
		return u
	}
	layer := func(digest string, change func(*Layer)) *Layer {
		l := &Layer{Digest: digest, Made: spec.Recipe{Arch: "amd64", Accounts: spec.Accounts{Users: []spec.User{user("ann"), user("bob")}},
			AppArmor: spec.AppArmor{Profiles: []spec.Profile{{File: "traceroute", Text: "old"}}}},
			Layer: spec.Layer{Arch: "amd64", Kernel: spec.KernelBlob{Release: "6.12.1-amd64"},
				Packages: []spec.InstalledPackage{{Name: "jq", Version: "1", Arch: "amd64"}, {Name: "libc6", Version: "2", Arch: "amd64"}, {Name: "libc6", Version: "2", Arch: "i386"}},
				AppArmor: spec.LoadedPolicy{Profiles: []spec.LoadedProfile{{Name: "/usr/sbin/chronyd", Mode: "enforce"}, {Name: "traceroute", Mode: "complain"}}}}}
		change(l)
		return l
	}
	old := layer("sha256:a", func(*Layer) {})
	for name, c := range map[string]struct {
		change func(*Layer)
		want   string
	}{
		"nothing": {func(*Layer) {}, ""},
		"a security update": {func(l *Layer) { l.Packages[2].Version = "3" },
			"apt libc6:i386 2 3"},
		"a package less": {func(l *Layer) { l.Packages = l.Packages[1:] }, "apt jq 1 "},
		"sudo and keys": {func(l *Layer) {
			l.Made.Accounts.Users = []spec.User{user("ann", func(u *spec.User) { u.Sudo = false }), user("bob", func(u *spec.User) { u.Keys = []string{"ssh-ed25519 B"} })}
		}, "uamlite ann/sudo yes |uamlite bob/keys 1 (" + digest.Short([]byte("ssh-ed25519 A")) + ") 1 (" + digest.Short([]byte("ssh-ed25519 B")) + ")"},
		"a user more, with all fields at once": {func(l *Layer) { l.Made.Accounts.Users = append(l.Made.Accounts.Users, user("zoe")) }, "uamlite zoe  account"},
		"a profile's text":                     {func(l *Layer) { l.Made.AppArmor.Profiles = []spec.Profile{{File: "traceroute", Text: "new"}} }, "apparmor file traceroute " + digest.Short([]byte("old")) + " " + digest.Short([]byte("new"))},
		"a profile's mode":                     {func(l *Layer) { l.AppArmor.Profiles[1].Mode = "enforce" }, "apparmor traceroute complain enforce"},
		"a kernel":                             {func(l *Layer) { l.Kernel.Release = "6.12.2-amd64" }, "kernel release 6.12.1-amd64 6.12.2-amd64"},
	} {
		next := layer("sha256:b", func(l *Layer) {
			l.Packages = slices.Clone(l.Packages)
			c.change(l)
		})
		got := compare.Layers(&old.Layer, &next.Layer, old.Made, next.Made)
		var lines []string
		for _, d := range got {
			lines = append(lines, d.Item+" "+d.Key+" "+d.From+" "+d.To)
		}
		if text := strings.Join(lines, "|"); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
	// A recipe without accounts has no map of them.
	first, none := layer("sha256:c", func(*Layer) {}), layer("sha256:d", func(l *Layer) { l.Made.Accounts = spec.Accounts{} })
	for _, c := range []struct {
		old, next *Layer
		want      string
	}{{none, first, "add add"}, {first, none, "remove remove"}} {
		got := compare.Layers(&c.old.Layer, &c.next.Layer, c.old.Made, c.next.Made)
		var actions []string
		for _, d := range got {
			actions = append(actions, d.Action)
		}
		if text := strings.Join(actions, " "); text != c.want {
			t.Errorf("accounts come or go: %q, want %q: %+v", text, c.want, got)
		}
	}
}

// What is published and read again is not a change, in whatever odd way it was written.
func TestPlanOfItselfIsEmpty(t *testing.T) {
	for _, conf := range []string{
		"conf: {mounts: {a: {mnt_tgt: /a, device: d, type: t, options: '', before: [], after: ''}}}\n",
		"conf: {exec: {a: {data: '#!/x', args: [], env: {}, rerun_policy: never}}}\n",
		"conf: {perm: {paths: [{path: /srv, owner: a}, {path: /srv, owner: b}, {path: /srv, owner: a}]}}\n",
		"conf: {sysctl: {-a.b: '', a.c: 1}, limits: {}, ethtool: {eth0: {}}}\n",
		"network: {dns: [], interfaces: []}\nmachine: {cas: [], kernel: {args: []}, overrides: {hosts: [{name: a}]}}\n",
	} {
		s := siteOf(t, "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes: [{name: a, match: {macs: []}}]\n"+conf)
		data, err := s.Compile("a", "", "")
		if err != nil {
			t.Fatal(err)
		}
		var o spec.Overlay
		if err := spec.Decode(data, &o); err != nil {
			t.Fatal(err)
		}
		if p := planAll(s, map[string]*spec.Overlay{"a": &o}, nil); p.Changed() {
			t.Errorf("%s: %+v", conf, p.Nodes)
		}
	}
}

// FuzzPlan: any site can be planned, and every node of it is in the plan.
func FuzzPlan(f *testing.F) {
	f.Add(`{apiVersion: caisson.dev/v1alpha1, kind: Site, metadata: {name: x}, nodes: [{name: a}, {name: b}], conf: {sysctl: {vm.swappiness: 1}}}`)
	f.Add(`{nodes: [{name: a}], conf: {apt: {packages: [{name: jq}]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			t.Skip()
		}
		s, _ := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
		if s == nil {
			return
		}
		if p := planAll(s, nil, nil); len(p.Nodes) != len(s.Nodes()) {
			t.Errorf("a plan of %d nodes for %d", len(p.Nodes), len(s.Nodes()))
		}
	})
}

// A layer for development that takes the place of another is said; one that follows one of
// its kind is not.
func TestFastLayer(t *testing.T) {
	s, found := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: m}\nlayer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\nnodes: [{name: a}]\n")}}, "site.yaml")
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, next, said bool
	}{{false, true, true}, {true, true, false}, {true, false, false}, {false, false, false}} {
		layers := built{}
		for digest, fast := range map[string]bool{"sha256:old": c.old, "sha256:next": c.next} {
			l := spec.Layer{Variant: "other", Recipe: "sha256:x", Arch: "amd64", Fast: fast}
			if digest == "sha256:next" {
				l.Variant, l.Recipe = site.DefaultVariant, "sha256:"+site.RecipeID(s.DefaultRecipe())
			}
			layers[digest] = &Layer{Layer: l, Digest: digest}
		}
		p := New(s, layers)
		o, err := s.Overlay("a", "sha256:old")
		if err != nil {
			t.Fatal(err)
		}
		p.Add("a", o)
		var b strings.Builder
		got := p.Plan()
		got.Write(&b)
		if got.Layers[0].Fast != c.said || strings.Contains(b.String(), "--fast") != c.said {
			t.Errorf("from fast %v to fast %v: %+v\n%s", c.old, c.next, got.Layers, b.String())
		}
	}
}

// TestAdvise: each layer that nodes leave is compared with the next one, once.
func TestAdvise(t *testing.T) {
	s := siteOf(t, "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nlayer: {base: {tar: none.tar}, kernel: {package: linux-image-amd64}}\nnodes: [{name: a}, {name: b}]\n")
	p := New(s, nothingBuilt{})
	p.Advise = func(v site.Variant, from, next *Layer) *advisory.Change {
		if v.Name != site.DefaultVariant || from == nil || next != nil {
			t.Errorf("%s: from %v to %v", v.Name, from, next)
		}
		return &advisory.Change{From: from.Digest, Closed: []advisory.Advisory{{ID: "CVE-1", Source: "jq", From: "1", To: "2", Urgency: "high"}}}
	}
	for _, n := range []string{"a", "b"} {
		p.Add(n, &spec.Overlay{Core: spec.Core{Layer: "sha256:1"}})
	}
	got := p.Plan()
	if len(got.Layers) != 1 || len(got.Layers[0].Advisories) != 1 || got.Layers[0].Advisories[0].From != "sha256:1" {
		t.Errorf("%+v", got.Layers)
	}
	var b strings.Builder
	got.Write(&b)
	if !strings.Contains(b.String(), "advisories: jq 1 → 2 closes CVE-1 (high)\n") {
		t.Error(b.String())
	}
}

// nothingBuilt has one layer of before.
type nothingBuilt struct{}

func (nothingBuilt) Next(site.Variant) *Layer        { return nil }
func (nothingBuilt) Published(digest string) *Layer  { return &Layer{Digest: digest} }
func (nothingBuilt) Fetch(from, to *Layer) (n int64) { return 0 }
