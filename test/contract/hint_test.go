// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"encoding/pem"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// TestHintToTheService: what a loader sends by TLS, known by its hardware alone, is shown
// by the fleet's service beside a node that never reported.
func TestHintToTheService(t *testing.T) {
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // nothing was written
	mac := []string{"52:54:00:00:00:01"}
	h, err := hub.Open(t.Context(), hub.Options{Store: db, Say: t.Logf, Index: func(context.Context, string) (hub.Published, error) {
		return hub.Published{Fleet: "metal", Root: "r", Rows: index.Rows{"n1": {Match: spec.Match{MACs: mac}}, "n2": {}}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := server.New(t.Context(), server.Options{Fleet: query.Fleet{Hub: h}, Hosts: []string{"127.0.0.1"}, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewTLSServer(handler)
	defer service.Close()
	b := spec.Bootstrap{Hints: service.URL, CAs: []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}))}}
	way := track.Way{Silence: 20 * time.Second, Agent: "caisson-agent/1", Clock: trust.Clock{RTC: time.Now()}}
	send := func(b spec.Bootstrap, hint spec.Hint) error {
		body, err := spec.Encode(hint)
		if err != nil {
			t.Fatal(err)
		}
		return fetch.Hint(t.Context(), b, way, body)
	}
	locked := spec.NewHint("metal", "", spec.Match{MACs: mac}, "refused: expired")
	locked.Code = "k7m2q-9xfab"
	if err := send(b, locked); err != nil {
		t.Fatal(err)
	}
	for _, n := range h.Nodes() {
		l := n.Line(time.Now())
		if l.Condition != view.Never || (l.Hint != nil) != (n.Name == "n1") || l.Hint != nil && (l.Hint.Why != "refused: expired" || l.Hint.From != "127.0.0.1" || l.Hint.Code != locked.Code) {
			t.Errorf("%+v, hint %+v", l, l.Hint)
		}
	}
	if err := send(b, spec.NewHint("another", "n1", spec.Match{}, "x")); err == nil || !strings.Contains(err.Error(), `for fleet "another"`) {
		t.Errorf("of another fleet: %v", err)
	}
	b.CAs = nil
	if err := send(b, spec.NewHint("metal", "n1", spec.Match{}, "x")); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("to a service that nobody vouches for: %v", err)
	}
}
