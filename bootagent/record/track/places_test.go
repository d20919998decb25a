// SPDX-License-Identifier: Apache-2.0

package track_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// TestNextPlace puts each attack that a registry can serve before a healthy mirror:
// the node must come up by the mirror, whatever the first place is.
func TestNextPlace(t *testing.T) {
	require.Slow(t)
	rows := attack.Load(t)
	good := rows[0].Forge(t)
	if rows[0].Name != "all is well" {
		t.Fatalf("the first row is %q", rows[0].Name)
	}
	mirror := good.Serve(t) + "/metal-a"
	hosts := map[string]string{
		"a portal":             serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }),
		"a server error":       serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }),
		"an empty manifest":    serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", oci.MediaTypeManifest) }),
		"a trickle":            serve(t, trickle),
		"silence":              serve(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }),
		"what wants passwords": serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }),
	}
	for _, row := range rows {
		if len(row.Author["fleet"]) > 0 {
			continue // what fleet:current says with a good signature holds, wherever it came from
		}
		if row.Refuses() && !strings.HasPrefix(row.Serve, "parse") && row.Serve != "direct" && reflect.DeepEqual(row.Node, rows[0].Node) {
			hosts[row.Name] = row.Forge(t).Serve(t)
		}
	}
	if len(hosts) < 60 {
		t.Fatalf("%d attacks, more belong here", len(hosts))
	}
	for name, host := range hosts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := pull.Open(oci.Ref{Host: host, Prefix: "metal-a"}, pull.Options{PlainHTTP: true, Mirrors: []string{mirror},
				Timeout: 3 * time.Second, Pace: pull.Pace{Bytes: 3000, Per: 3 * time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			folder, err := state.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			n := rows[0].Node
			f := track.Tracker{Source: src, Folder: folder, Identity: trust.Identity{Node: n.Name, MACs: n.MACs, UUIDs: n.UUIDs}, Say: t.Logf,
				Bootstrap: spec.Bootstrap{APIVersion: spec.APIVersion, Kind: spec.KindBootstrap, Fleet: n.Fleet, Keys: attack.Publics(t, n.Keys), EpochKeys: attack.Publics(t, n.EpochKeys), Threshold: 1}}
			if _, err := f.Sync(t.Context()); err != nil {
				t.Errorf("Sync = %v", err)
			}
			if _, err := trust.Layer(t.Context(), src, good.LayerDigest); err != nil {
				t.Errorf("Layer = %v", err)
			}
		})
	}
}

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// trickle answers with a byte now and then.
func trickle(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", oci.MediaTypeManifest)
	for req.Context().Err() == nil {
		if _, err := w.Write([]byte(" ")); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		time.Sleep(10 * time.Millisecond)
	}
}
