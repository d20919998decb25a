// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
)

// What is answered is in the site, whatever it looks like; a bad answer is an
// error.
func TestSite(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Answers)
		has    []string
		not    string
		reason string
	}{
		{"nothing", func(*Answers) {}, []string{"package: linux-image-amd64", "components: [main, non-free-firmware]", "{name: firmware-intel-misc}", "registry: oci:./out", "or registry.example.org:5000/metal-a", `macs: ["52:54:00:00:00:01"]`}, "cloud", ""},
		{"virtual", func(a *Answers) { a.Kernel = "linux-image-cloud-amd64" }, []string{"components: [main]}", "package: linux-image-cloud-amd64"}, "firmware", ""},
		{"bookworm", func(a *Answers) { a.Suite = "bookworm" }, []string{"suite: bookworm", "{name: firmware-misc-nonfree}"}, "firmware-intel-misc", ""},
		{"nodes", func(a *Answers) {
			a.Registry, a.Nodes = "registry.example.org:5000/x", []Node{ParseNode("a=3c:fd:fe:00:00:01"), ParseNode("b"), ParseNode("1")}
		}, []string{"registry: registry.example.org:5000/x", `macs: ["3c:fd:fe:00:00:01"]`, "  - name: b\n    labels: {role: worker}\n  - name: \"1\"\n"}, "node1", ""},
		{"cloud kernel on metal", func(a *Answers) {
			a.Kernel, a.Nodes = "linux-image-cloud-amd64", []Node{ParseNode("a=3c:fd:fe:00:00:01")}
		}, nil, "firmware", "has drivers of virtual machines only"},
		{"no address", func(a *Answers) { a.Nodes = []Node{ParseNode("a=x")} }, nil, "-", `"x" is not the address of an interface`},
		{"a name for another key", func(a *Answers) { a.Nodes = []Node{{Name: "a, b: {c"}} }, nil, "-", "is not a node name"},
		{"no package", func(a *Answers) { a.Kernel = "linux image\nx: y" }, nil, "-", "is not the name of a package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Usual("metal-a")
			c.change(&a)
			text, err := a.Site()
			if err != nil {
				if c.not != "-" || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("%v, want %q", err, c.reason)
				}
				return
			}
			for _, part := range c.has {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in\n%s", part, text)
				}
			}
			if strings.Contains(text, c.not) {
				t.Errorf("%q in\n%s", c.not, text)
			}
			_, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(withoutKeys(text))}}, "site.yaml")
			r.DropNotes()
			got := ""
			for _, p := range r.Problems {
				got += p.String()
			}
			if !strings.Contains(got, c.reason) || c.reason == "" && got != "" {
				t.Errorf("the site's problems are %q, want %q", got, c.reason)
			}
		})
	}
}

// withoutKeys leaves out what needs files.
func withoutKeys(text string) string {
	before, after, _ := strings.Cut(text, "trust:\n")
	return before + after[strings.Index(after, "conf:\n"):]
}

func TestAsk(t *testing.T) {
	usual := Usual("x")
	usual.Nodes = []Node{{Name: "node1"}}
	all := usual
	all.Kernel, all.Registry, all.Nodes = "linux-image-cloud-amd64", "registry.example.org/x", []Node{{Name: "a", MAC: "52:54:00:00:00:02"}}
	for text, want := range map[string]Answers{
		"":         usual,
		"\n\n\n\n": usual,
		"metal\n":  usual,
		"virtual\nregistry.example.org/x\n a \n52:54:00:00:00:02\n": all,
	} {
		a := Usual("x")
		if err := a.Ask(strings.NewReader(text), io.Discard); err != nil || !reflect.DeepEqual(a, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, a, err, want)
		}
	}
	a := Usual("x")
	if err := a.Ask(strings.NewReader("both\n"), io.Discard); err == nil {
		t.Error("both are taken")
	}
}
