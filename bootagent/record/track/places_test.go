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
	"github.com/caisson-os/caisson/spec/refusal"
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

// A node that is matched by its card's address boots its last good overlay when the
// card is gone or replaced; another machine with its disk does not, and nothing that
// the registry offers is accepted by an address that is only remembered.
func TestACardThatIsGone(t *testing.T) {
	const card, uuid = "52:54:00:00:00:0a", "4c4c4544-0000-2010-8020-80c04f202020"
	f := newFleet(t)
	f.Identity = trust.Identity{Node: "superhost", MACs: []string{card}, UUIDs: []string{uuid}}
	f.overlay(said{generation: 1, macs: []string{card, "52:54:00:00:00:0b"}}, "10")
	f.sync()
	f.promote()
	for _, c := range []struct {
		name string
		id   trust.Identity
		good bool
	}{
		{"as it was", trust.Identity{MACs: []string{card}, UUIDs: []string{uuid}}, true},
		{"no card", trust.Identity{UUIDs: []string{uuid}}, true},
		{"another card", trust.Identity{MACs: []string{"52:54:00:00:00:ff"}, UUIDs: []string{uuid}}, true},
		{"another machine", trust.Identity{UUIDs: []string{"00000000-0000-4000-8000-00000000000b"}}, false},
		{"no UUID", trust.Identity{MACs: []string{"52:54:00:00:00:ff"}}, false},
		{"told another name", trust.Identity{Node: "other", UUIDs: []string{uuid}}, false},
	} {
		f.Identity = c.id
		if good, err := f.Good(false); (err == nil) != c.good || c.good && good[0].Generation.Generation != 1 {
			t.Errorf("%s: %v, %v", c.name, good, err)
		}
	}
	f.Identity = trust.Identity{Node: "superhost", UUIDs: []string{uuid}}
	f.overlay(said{generation: 2, macs: []string{card}}, "20")
	if _, err := f.Sync(t.Context()); refusal.Of(err) != refusal.WrongMachine {
		t.Errorf("what the registry offers is accepted by a remembered address: %v", err)
	}
}

// An address that the overlay is bound to and the machine never had is not proof.
func TestProofIsWhatTheMachineHad(t *testing.T) {
	f := newFleet(t)
	f.Identity = trust.Identity{Node: "superhost", MACs: []string{"52:54:00:00:00:0a"}, UUIDs: []string{"u"}}
	f.overlay(said{generation: 1, macs: []string{"52:54:00:00:00:0a", "52:54:00:00:00:0b"}}, "10")
	f.sync()
	if p := f.state().Proof; p.UUID != "u" || len(p.MACs) != 1 || p.MACs[0] != "52:54:00:00:00:0a" {
		t.Errorf("%+v", p)
	}
}
