// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// TestPassOverIsSure: what a node goes back to behind a foreign generation is what was found,
// and nothing where that cannot be looked for, or is not there.
func TestPassOverIsSure(t *testing.T) {
	f := newFleet(t)
	for _, value := range []string{"10", "20", "30"} {
		must(t, f.gives(t.Context(), value, Options{}))
	}
	handler, err := registry.Handler(f.Registry.Ref().Layout)
	must(t, err)
	away := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if away != "" && strings.HasSuffix(q.URL.Path, away) {
			http.Error(w, "", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, q)
	}))
	defer server.Close()
	p := *f.Publisher
	p.Registry, err = registry.Open(strings.TrimPrefix(server.URL, "http://")+"/metal-a", registry.Options{PlainHTTP: true})
	must(t, err)
	published, err := p.Read(t.Context(), f.policy)
	must(t, err)
	before := func(number uint64) string {
		past, err := published.Past(t.Context(), Generation{Number: number})
		must(t, err)
		row, _, err := past.Row(t.Context(), "n0")
		must(t, err)
		return row.Before.Overlay
	}
	last := published.v.index.Root.Generation // gave 30
	for _, c := range []struct {
		what, away string
		foreign    uint64 // generations from here on
		goesTo     string // "-" is refused
	}{
		{"all is there", "", last, before(last - 1)},
		{"no list of generations", "/fleet/tags/list", last, "-"},
		{"the generation before is not read", "/fleet/manifests/" + Generation{Number: last - 1}.tag(), last, "-"},
		{"no generation was ours", "", 1, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			away = c.away
			published.v.index.Root.Foreign = []spec.Span{{From: c.foreign, To: last}}
			was := spec.Published{Foreign: true, Before: &spec.Content{Overlay: "what it gets"}}
			err := (&run{Fleet: &Fleet{&p, published.v}, c: &change{todo: []work{{name: "n0", was: &was, overlay: "what it gets"}}}}).passOver(t.Context())
			goesTo := ""
			switch {
			case err != nil:
				goesTo = "-"
			case was.Before != nil:
				goesTo = was.Before.Overlay
			}
			if goesTo != c.goesTo {
				t.Errorf("it goes back to %q (%v), want %q", goesTo, err, c.goesTo)
			}
		})
	}
}
