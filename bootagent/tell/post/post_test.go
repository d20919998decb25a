// SPDX-License-Identifier: Apache-2.0

package post

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

func posts(t *testing.T, sent *[]Letter) *Post {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := fixture.NewFleet(t)
	return &Post{Folder: folder, Boot: "boot", Lasts: true, Say: t.Logf,
		Tracker: &track.Tracker{Bootstrap: f.Bootstrap(), Identity: trust.Identity{Node: fixture.Node}, Folder: folder, Say: t.Logf},
		By: func(_ context.Context, l Letter) error {
			*sent = append(*sent, l)
			return nil
		}}
}

// A report goes to the service, or into the registry beside the node's name.
func TestWhereReportsGo(t *testing.T) {
	var sent []Letter
	p := posts(t, &sent)
	if err := errors.Join(p.Post(t.Context(), spec.Reporting{URL: "https://fleet.example"}, []byte("one")), p.Post(t.Context(), spec.Reporting{Registry: "r.example/x"}, []byte("two"))); err != nil {
		t.Fatal(err)
	}
	if a, b := sent[0], sent[1]; a.URL != "https://fleet.example"+ReportPath || !a.Token || b.URL != "" || b.Token || *b.Put != (Place{Registry: "r.example/x", Node: fixture.Node}) {
		t.Errorf("%+v", sent)
	}
}

// A proof goes to the origin that the node reports to alone.
func TestWhoIsProvenTo(t *testing.T) {
	var sent []Letter
	p := posts(t, &sent)
	if _, err := p.Reporter(); err != nil {
		t.Fatal(err)
	}
	for server, proven := range map[string]bool{"https://fleet.example": true, "https://fleet.example/below": true, "http://fleet.example": false,
		"https://fleet.example:444": false, "https://other.example": false, "https://fleet.example.other": false} {
		sent = nil
		o := &spec.Overlay{Core: spec.Core{Fleet: fixture.Name, Node: fixture.Node}, Agent: &spec.Agent{Report: &spec.Reporting{URL: "https://fleet.example/x"}}}
		if err := p.Slots(o).Take(t.Context(), "g", spec.Slot{Max: 1, FleetLock: server}); err != nil {
			t.Fatal(err)
		}
		if l := sent[0]; (l.Header[ProofHeader] != "") != proven || l.Token != proven {
			t.Errorf("%s: %+v", server, l)
		}
	}
}

// Without anybody who is trusted there is nobody to report to.
func TestUnbound(t *testing.T) {
	unbound := errors.New("nobody is trusted")
	if _, err := (&Post{Unbound: unbound}).Reporter(); !errors.Is(err, unbound) {
		t.Error(err)
	}
}

func TestRecordReport(t *testing.T) {
	var names []string
	p := &Post{Log: func(event string, fields ...events.Field) {
		for _, f := range fields {
			names = append(names, fmt.Sprintf("%s.%s=%v", event, f.Name, f.Value))
		}
	}}
	r := &spec.Report{}
	r.Axes.Health = spec.Axis{State: "degraded", Detail: "a check"}
	if p.RecordReport(r); !slices.Contains(names, "report.why=a check") || !slices.Contains(names, "report.health=degraded") {
		t.Errorf("%q", names)
	}
}
