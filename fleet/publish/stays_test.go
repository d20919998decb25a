// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/prune"
	. "github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/test/registrytest"
)

// TestPruneSaysWhatStays: of a registry that deletes nothing, or whose tags do not change,
// prune says what stays, each time; where all goes, nothing stays.
func TestPruneSaysWhatStays(t *testing.T) {
	for _, row := range []struct {
		name    string
		status  int // of each DELETE; 0 for none that is refused
		changes bool
	}{
		{"all goes", 0, true},
		{"no DELETE", http.StatusMethodNotAllowed, true},
		{"not found", http.StatusNotFound, true},
		{"unauthorized", http.StatusUnauthorized, true},
		{"forbidden", http.StatusForbidden, true},
		{"immutable", http.StatusMethodNotAllowed, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			backend := registrytest.WithReferrers(t)
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
			proxy.ModifyResponse = func(resp *http.Response) error { resp.Header.Del("Date"); return nil } // the test has its own clock
			isThere := func(path string) bool {
				resp, err := http.Head("http://" + backend + path)
				if err == nil {
					resp.Body.Close()
				}
				return err == nil && resp.StatusCode == http.StatusOK
			}
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header()["Date"] = nil
				_, tag, _ := strings.Cut(q.URL.Path, "/fleet/manifests/gen-")
				switch {
				case q.Method == http.MethodDelete && row.status != 0:
					http.Error(w, `{"errors":[{"code":"UNSUPPORTED"}]}`, row.status)
				case q.Method == http.MethodPut && tag != "" && !row.changes && isThere(q.URL.Path):
					http.Error(w, `{"errors":[{"code":"TAG_INVALID","message":"the tag is immutable"}]}`, http.StatusBadRequest)
				default:
					proxy.ServeHTTP(w, q)
				}
			}))
			defer s.Close()
			f := newFleet(t)
			p := f.at(t, strings.TrimPrefix(s.URL, "http://")+"/metal-a")
			p.Trust = &f.Policy
			for i := range 3 {
				if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", fmt.Sprint(i)), Options{}); err != nil {
					t.Fatal(err)
				}
				p.NewFleet = false
				p.Now = p.Now.Add(time.Second)
			}
			p.Now = p.Now.Add(reserve.Honored + time.Hour)
			said := ""
			p.Say = func(format string, args ...any) { said += fmt.Sprintf(format, args...) + "\n" }
			for _, keep := range []prune.Keep{{Versions: 1, Generations: 1}, {Versions: 1, Generations: 1}, {Versions: 1, Generations: 9}} { // what is removed does not come again
				if keep.Generations == 9 && (row.name == "immutable" || row.name == "not found") {
					continue // whose earlier generations are whole
				}
				out, err := prune.Run(t.Context(), &p.Reader, p.Alone, keep, false)
				if err != nil {
					t.Fatal(err)
				}
				intents, generations := 0, 0
				for _, name := range out.Stays {
					if strings.HasPrefix(name, "fleet:intent-") {
						intents++
					}
					if strings.HasPrefix(name, "fleet:gen-") {
						generations++
					}
				}
				want := 0
				if row.status != 0 {
					want = 2
				}
				if out.Removed != (want == 0) || generations != want || (intents >= 3) != (want > 0) || (want == 0) != (len(out.Stays) == 0) {
					t.Errorf("removed %v, stays %q", out.Removed, out.Stays)
				}
			}
			if got := strings.Contains(said, "3 reservations of earlier publishes stayed"); got != (row.status != 0) {
				t.Errorf("said %q", said)
			}
			tags, err := p.Registry.Tags(t.Context(), oci.RepoFleet)
			if err != nil || !slices.Contains(tags, "index") {
				t.Errorf("tags %q, %v", tags, err)
			}
			// What stays is in nobody's way.
			if _, err := p.Publish(t.Context(), f.Policy, f.Nodes("", "9"), Options{}); err != nil {
				t.Error(err)
			}
		})
	}
}
