// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/track"

	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// TestSlotsAreProven: to the service that it reports to a node proves that it asks,
// each time; to any other it says nothing of its key.
func TestSlotsAreProven(t *testing.T) {
	m := newMachine(t)
	m.publishReporting(1, "10")
	m.boot()
	m.apply()
	n := m.open()
	var sent []post.Letter
	n.session.Options.Post = func(_ context.Context, _ spec.Bootstrap, _ track.Way, l post.Letter) error {
		sent = append(sent, l)
		return nil
	}
	found, err := n.effect.Running()
	if err != nil {
		t.Fatal(err)
	}
	slots, ctx := n.post.Slots(&found.Overlay), t.Context()
	own, other := spec.Slot{Max: 1, FleetLock: reportURL}, spec.Slot{Max: 1, FleetLock: "https://lock.example"}
	ask := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ask(slots.Take(ctx, "g", own)) // before there is a key
	if _, err := n.Reporter(); err != nil {
		t.Fatal(err)
	}
	ask(slots.Take(ctx, "g", other))
	ask(slots.Take(ctx, "g", own))
	ask(slots.Release(ctx, "g", own))
	var last time.Time
	for i, want := range []struct {
		url    string
		token  bool
		proves string
	}{{reportURL + "/v1/pre-reboot", true, ""}, {"https://lock.example/v1/pre-reboot", false, ""}, {reportURL + "/v1/pre-reboot", true, "pre-reboot"}, {reportURL + "/v1/steady-state", true, "steady-state"}} {
		l := sent[i]
		header := l.Header[post.ProofHeader]
		if l.URL != want.url || l.Token != want.token || (header != "") != (want.proves != "") || l.Header["Fleet-Lock-Protocol"] != "true" {
			t.Errorf("%d: %+v", i, l)
		}
		if header == "" {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(header)
		if err != nil {
			t.Fatal(err)
		}
		data, key, err := sign.OpenReport(raw)
		if err != nil {
			t.Fatal(err)
		}
		var r spec.SlotRequest
		if err := spec.Decode(data, &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind != spec.KindSlotRequest || r.Key != key.ID() || r.Node != "superhost" || r.Fleet != found.Overlay.Fleet || r.Group != "g" || r.Act != want.proves || r.BootID != n.session.Scopes.Kernel || !r.Time.After(last) {
			t.Errorf("%+v", r)
		}
		last = r.Time
	}
}

// TestSlotsOverASoftReboot: another root asks with the boot id of the node's reports, which the
// service compares it with, and has the slot that the root before took; operations are
// asked again.
func TestSlotsOverASoftReboot(t *testing.T) {
	m := newMachine(t)
	m.publishReporting(1, "10")
	m.boot()
	m.apply()
	ids, starts := map[string]bool{}, map[string]bool{}
	dir, group := t.TempDir(), spec.Slot{Max: 1, FleetLock: reportURL}
	shared := spec.Slot{Max: 1, Directory: dir}
	for _, root := range []string{"root", "next"} {
		b, err := record.LoadBoot(m.root + paths.RunBoot)
		if err != nil {
			t.Fatal(err)
		}
		b.RootID, b.Upper = root, paths.RootUpper
		if err := record.SaveBoot(m.root+paths.RunBoot, b); err != nil {
			t.Fatal(err)
		}
		n := m.open()
		n.session.Options.Post = func(_ context.Context, _ spec.Bootstrap, _ track.Way, l post.Letter) error {
			raw, err := base64.StdEncoding.DecodeString(l.Header[post.ProofHeader])
			if err != nil {
				t.Fatal(err)
			}
			data, _, err := sign.OpenReport(raw)
			if err != nil {
				t.Fatal(err)
			}
			var r spec.SlotRequest
			err = spec.Decode(data, &r)
			ids[r.BootID] = true
			return err
		}
		if _, err := n.Reporter(); err != nil {
			t.Fatal(err)
		}
		st, err := n.look.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found, err := n.effect.Running()
		if err != nil {
			t.Fatal(err)
		}
		ids[st.BootID], starts[n.operate.Engine(found).Boot] = true, true
		h := n.post.Slots(&found.Overlay)
		if err := errors.Join(h.Take(t.Context(), "g", group), h.Take(t.Context(), "g", shared)); err != nil {
			t.Errorf("root %s: %v", root, err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) != 1 || len(starts) != 2 {
		t.Errorf("boot ids %v; operations of %v", ids, starts)
	}
	if err := (post.Holder{Node: "other"}).Take(t.Context(), "g", shared); err == nil {
		t.Error("two roots of one node had two slots, or none")
	}
}
