// SPDX-License-Identifier: Apache-2.0

package document_test

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/document"
)

// What is answered is in the site, whatever it looks like; a bad answer is an
// error.
func TestSite(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*document.Answers)
		has    []string
		not    string
		reason string
	}{
		{"nothing", func(*document.Answers) {}, []string{"package: linux-image-amd64", "components: [main, non-free-firmware]", "{name: firmware-intel-misc}", "registry: oci:./out", "or registry.example.org:5000/metal-a", `macs: ["52:54:00:00:00:01"]`}, "cloud", ""},
		{"virtual", func(a *document.Answers) { a.Kernel = "linux-image-cloud-amd64" }, []string{"components: [main]}", "package: linux-image-cloud-amd64"}, "firmware", ""},
		{"bookworm", func(a *document.Answers) { a.Suite = "bookworm" }, []string{"suite: bookworm", "{name: firmware-misc-nonfree}"}, "firmware-intel-misc", ""},
		{"nodes", func(a *document.Answers) {
			a.Registry, a.Nodes = "registry.example.org:5000/x", []document.NodeAnswer{document.ParseNodeAnswer("a=3c:fd:fe:00:00:01"), document.ParseNodeAnswer("b"), document.ParseNodeAnswer("1")}
		}, []string{"registry: registry.example.org:5000/x", `macs: ["3c:fd:fe:00:00:01"]`, "  - name: b\n    labels: {role: worker}\n  - name: \"1\"\n"}, "node1", ""},
		{"cloud kernel on metal", func(a *document.Answers) {
			a.Kernel, a.Nodes = "linux-image-cloud-amd64", []document.NodeAnswer{document.ParseNodeAnswer("a=3c:fd:fe:00:00:01")}
		}, nil, "firmware", "has drivers of virtual machines only"},
		{"no address", func(a *document.Answers) { a.Nodes = []document.NodeAnswer{document.ParseNodeAnswer("a=x")} }, nil, "-", `"x" is not the address of an interface`},
		{"a name for another key", func(a *document.Answers) { a.Nodes = []document.NodeAnswer{{Name: "a, b: {c"}} }, nil, "-", "is not a node name"},
		{"no package", func(a *document.Answers) { a.Kernel = "linux image\nx: y" }, nil, "-", "is not the name of a package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := document.UsualAnswers("metal-a")
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
	usual := document.UsualAnswers("x")
	usual.Nodes = []document.NodeAnswer{{Name: "node1"}}
	all := usual
	all.Kernel, all.Registry, all.Nodes = "linux-image-cloud-amd64", "registry.example.org/x", []document.NodeAnswer{{Name: "a", MAC: "52:54:00:00:00:02"}}
	for text, want := range map[string]document.Answers{
		"":         usual,
		"\n\n\n\n": usual,
		"metal\n":  usual,
		"virtual\nregistry.example.org/x\n a \n52:54:00:00:00:02\n": all,
	} {
		a := document.UsualAnswers("x")
		if err := a.Ask(strings.NewReader(text), io.Discard); err != nil || !reflect.DeepEqual(a, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, a, err, want)
		}
	}
	a := document.UsualAnswers("x")
	if err := a.Ask(strings.NewReader("both\n"), io.Discard); err == nil {
		t.Error("both are taken")
	}
}
