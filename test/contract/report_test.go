// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	fleetreport "github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// TestReportInARegistry: what a node puts into a registry is what a fleet's service and
// the command line read there.
func TestReportInARegistry(t *testing.T) {
	require.Root(t)
	b := spec.Bootstrap{Registry: registrytest.Distribution(t) + "/metal", PlainHTTP: true}
	send := func(ctx context.Context, to spec.Reporting, raw []byte) error {
		return fetch.Post(ctx, b, track.Way{Silence: 20 * time.Second, Clock: trust.Clock{RTC: time.Now()}}, post.Letter{Put: &post.Place{Registry: to.Registry, Node: "n1"}, Body: raw})
	}
	spool := filepath.Join(t.TempDir(), "report")
	r, err := post.OpenReports(spool, spec.KeyPinned, send, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := oci.ParseRef(b.Registry)
	if err != nil {
		t.Fatal(err)
	}
	from, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []*spec.Report
	box := &fleetreport.Inbox{From: from, Refuses: func(error) bool { return false }, Take: func(_ context.Context, node string, raw []byte) error {
		one, err := fleetreport.Open(node, raw, time.Now())
		got = append(got, one)
		return err
	}}
	// The state of a node after a first run, in a report as long as one may be.
	st := &spec.Status{Fleet: "metal", Node: "n1", BootID: "b", Generation: 1, Health: spec.HealthDegraded}
	for range 500 {
		st.Drift = append(st.Drift, spec.Drift{Item: "sysctl", Key: "net/ipv4/ip_forward", From: "0", To: "1", Action: spec.ActionRefuse})
	}
	for range 2 { // the second time there are no news
		if _, err := r.Look(t.Context(), spec.NewReport(st), spec.Reporting{Registry: b.Registry, Interval: 3600}); err != nil {
			t.Fatal(err)
		}
		if _, waiting, err := post.Peek(spool); err != nil || waiting != 0 {
			t.Fatal(waiting, err)
		}
		if refused, err := box.Read(t.Context(), []string{"n1", "n2"}, 2); err != nil || len(refused) != 0 {
			t.Fatal(refused, err)
		}
	}
	if len(got) != 1 || got[0].Node != "n1" || len(got[0].Drift) == 0 {
		t.Errorf("read %+v", got)
	}
}
