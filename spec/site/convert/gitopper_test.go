// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
)

const gitopperFile = `# services of all machines
[global]
upstream = "https://github.com/miekg/blah-origin"  # repository
mount = "/tmp"
keys = [ { path = "keys/a.pub" }, { path = "keys/b.pub", ro = true } ]

[[services]]
machine = "grafana.atoom.net"
branch = "next"
service = "grafana-server"
user = "grafana"
package = "grafana"
action = "reload"
mount = "/var/tmp"
dirs = [
    { local = "/etc/grafana", link = "grafana/etc" },
    { local = "/var/lib/grafana/dashboards", link = "grafana/dashboards" },
    { local = "", link = "grafana/extra" },
]

[[services]]
machine = "a"
service = "prometheus"
upstream = "git@git.example.org:conf.git"
dirs = [ { local = "/etc/default/prometheus", link = "prometheus/default", file = true } ]

[[services]]
machine = "b"
service = "prometheus"
upstream = "git@git.example.org:conf.git"
dirs = [ { local = "/etc/default/prometheus", link = "prometheus/default", file = true } ]

[[services]]
machine = "c"
service = "prometheus"
upstream = "git@git.example.org:conf.git"
branch = "canary"
dirs = [ { local = "/etc/default/prometheus", link = "prometheus/default", file = true } ]

[[services]]
machine = "a"
service = "gitopper"
dirs = [ { local = "/etc/gitopper", link = "gitopper" } ]

[[services]]
machine = "a"
service = "odd"
action = "kill"
dirs = [ { local = "/usr/lib/odd", link = "odd" } ]
`

// TestGitopper reads gitopper's own file: what it says becomes documents that a site
// takes, machines that say the same share one, and every line has its account.
func TestGitopper(t *testing.T) {
	r, err := Import([]File{{Name: "config.toml", Data: []byte(gitopperFile)}})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := r.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	s, report := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes: [{name: a}, {name: b}, {name: c}, {name: grafana.atoom.net}]\n---\n" + text.String())}}, "site.yaml")
	if report.Err() != nil {
		t.Fatalf("%v\n%s", report.Problems, text.String())
	}
	var got []string
	for _, n := range s.Nodes() {
		o, err := s.Overlay(n.Name, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range o.Services {
			got = append(got, fmt.Sprintf("%s %s %s %s %s %s %v", n.Name, v.Name, v.Unit, v.User, v.Package, v.Action, v.Directories))
		}
	}
	want := []string{"a prometheus prometheus.service    [{prometheus/default /etc/default/prometheus true}]", "b prometheus prometheus.service    [{prometheus/default /etc/default/prometheus true}]",
		"c prometheus-2 prometheus.service    [{prometheus/default /etc/default/prometheus true}]",
		"grafana.atoom.net grafana-server grafana-server.service grafana grafana reload [{grafana/etc /etc/grafana false} {grafana/dashboards /var/lib/grafana/dashboards false}]"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	refs := map[string]string{}
	for _, v := range s.Services().List {
		refs[v.Name] = v.Git.URL + " " + v.Git.Ref()
	}
	if refs["grafana-server"] != "https://github.com/miekg/blah-origin branch next" || refs["prometheus"] != "ssh://git@git.example.org/conf.git branch main" || refs["prometheus-2"] != "ssh://git@git.example.org/conf.git branch canary" {
		t.Errorf("%v", refs)
	}
	lines := map[int]coverage.Line{}
	for _, l := range r.Coverage {
		if l.Why == "" != l.Taken {
			t.Errorf("%+v is neither taken nor left", l)
		}
		if l.Why != "" || lines[l.Line].Why == "" {
			lines[l.Line] = l
		}
	}
	for n, want := range map[int]string{4: "mounted below", 5: "have no listener", 14: "mounted below", 15: "no local", 43: "comes with the layer", 48: "a site refuses it"} {
		if !strings.Contains(lines[n].Why, want) {
			t.Errorf("line %d: %+v, want %q", n, lines[n], want)
		}
	}
	for n, want := range map[int]string{3: "git of each NodeService", 8: "NodeService grafana-server, nodes", 9: "NodeService grafana-server, git.branch", 37: "NodeService prometheus-2, git.branch"} {
		if lines[n].As != want {
			t.Errorf("line %d: %+v, want %q", n, lines[n], want)
		}
	}
}

// TestGitopperRefuses what is not a file of gitopper, and what it does not know, with its place.
func TestGitopperRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"[[services]]\nmachine = \"a\"\nservice = \"x\"\nextra = 1\n": "no such key",
		"[[services]]\nservice = \"x\"\nmachine = 1\n":                "not text",
		"[other]\nx = 1\n[[services]]\nmachine = \"a\"\n":             "no such table",
		"[[services]]\nmachine = \"a\"\nservice = \"../x\"\n":         "it installs nothing",
	} {
		r, err := Import([]File{{Name: "config.toml", Kind: "gitopper", Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, l := range r.Coverage {
			found = found || strings.Contains(l.Why, want)
		}
		if !found || len(r.Documents) > 0 {
			t.Errorf("%q: %+v, %v", text, r.Coverage, r.Documents)
		}
	}
}

func FuzzGitopper(f *testing.F) {
	f.Add(gitopperFile)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Import([]File{{Name: "x", Kind: "gitopper", Data: []byte(text)}})
		if err != nil {
			return
		}
		if why := coverage.RefusedDocuments(r.Documents); len(r.Documents) > 0 && why != "" && !strings.Contains(why, "two services") && !strings.Contains(why, "lie in each other") && !strings.Contains(why, "given already") {
			t.Errorf("%s: %v", why, r.Documents)
		}
	})
}

// A file that ends early, or is broken, makes no part of a site, and the line is named.
func TestGitopperFileThatIsCut(t *testing.T) {
	for text, want := range map[string]string{
		"[[services]]\nmachine = \"a\"\nservice = \"s\"\ndirs = [ { local = \"/etc/s\", li":                               "gitopper.toml:4: ",
		"[global]\n[[services\nmachine = \"a\"\n":                                                                         "gitopper.toml:2: ",
		"[[services]]\nmachine = \"a\"\nservice = \"s\"\ndirs = [ { local = \"/etc/s\", link = \"s\" } ]\n[[services]]\n": "gitopper.toml:5: ",
	} {
		r, err := Import([]File{{Name: "gitopper.toml", Data: []byte(text)}})
		if r != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, r, err, want)
		}
	}
}
