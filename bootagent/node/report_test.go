// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

const reportURL = "https://fleet.example"

func (m *machine) publishReporting(generation uint64, swappiness string) {
	m.t.Helper()
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layerNamed("a")}, Agent: &spec.Agent{Poll: 900, Report: &spec.Reporting{URL: reportURL, Interval: 300}},
		Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}}}, sign.Predicate{Generation: generation})
	m.confirm(time.Now())
}

// A node tells what its status says, signed by a key that stays, to whom its overlay
// names.
func TestReport(t *testing.T) {
	m := newMachine(t)
	m.publishReporting(1, "10")
	m.boot()
	st := m.apply()
	var sent [][]byte
	open := func() *Node {
		n := m.open()
		n.session.Options.Post = func(_ context.Context, _ spec.Bootstrap, _ track.Way, l post.Letter) error {
			if l.URL != reportURL+"/v1/report" || !l.Token {
				t.Errorf("sent to %s", l.URL)
			}
			sent = append(sent, l.Body)
			return nil
		}
		return n
	}
	for range 2 { // the second time, the agent was started again
		n := open()
		if last := n.session.Last(); last.RootID != n.session.Scopes.Root || last.Generation != 1 {
			t.Fatalf("no status is kept: %+v", last)
		}
		if n.Poll() != 15*time.Minute {
			t.Errorf("asks every %s", n.Poll())
		}
		one, to, err := n.Report(st)
		if err != nil || to == nil {
			t.Fatal(err)
		}
		r, err := n.Reporter()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Look(t.Context(), one, *to); err != nil {
			t.Fatal(err)
		}
	}
	keys := map[string]bool{}
	for _, raw := range sent {
		data, key, err := sign.OpenReport(raw)
		if err != nil {
			t.Fatal(err)
		}
		r, err := spec.DecodeReport(data)
		if err != nil {
			t.Fatal(err)
		}
		keys[key.ID()] = true
		if r.Node != "superhost" || r.Generation != 1 || r.Key != key.ID() || !cmp.Equal(r.Axes, st.Axes()) || !cmp.Equal(r.Items, st.Items) || len(r.Boot) == 0 {
			t.Errorf("%+v of\n%+v", r, st)
		}
	}
	if len(sent) != 2 || len(keys) != 1 {
		t.Errorf("%d reports, %d keys", len(sent), len(keys))
	}
}

// TestANodeKeyCommandsNobody: a machine does not report with a key that its fleet
// obeys, so that no disk of a node holds one.
func TestANodeKeyCommandsNobody(t *testing.T) {
	m := newMachine(t)
	m.publishReporting(1, "10")
	m.boot()
	m.apply()
	der, err := x509.MarshalPKCS8PrivateKey(m.Operator)
	if err != nil {
		t.Fatal(err)
	}
	name := m.root + paths.State + "/identity/report.pem"
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	n := m.open()
	if _, err := n.Reporter(); err == nil || !strings.Contains(err.Error(), "nodes obey") {
		t.Errorf("reports with the operator's key: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Reporter(); err != nil {
		t.Error(err)
	}
}

// That keys were left out is said once an overlay.
func TestKeepSaysWhatWasLeftOut(t *testing.T) {
	m := newMachine(t)
	m.publishItems(1, layerNamed("a"), spec.Items{})
	m.boot()
	m.apply()
	n := m.open()
	defer n.Close() // the test is over
	st, err := n.look.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	n.session.Options.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for _, overlay := range []string{"sha256:1", "sha256:1", "sha256:2"} {
		st.Overlay, st.LeftOut = overlay, []string{"items.sysctl[].onlyIf"}
		if err := n.look.Keep(st); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(strings.Join(said, "\n"), "generation 1: left out: items.sysctl[].onlyIf (of a later release)"); got != 2 {
		t.Errorf("said %d times, want once an overlay: %q", got, said)
	}
}

// What a kind writes on a running node is not somebody's: only the rest is named.
func TestWhatKindsWriteIsNotForeign(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publishItems(2, layerNamed("a"), spec.Items{
		Files:   []spec.File{{Path: "/etc/app.conf", Content: "x\n"}},
		Units:   []spec.Unit{{Name: "app.service", Content: "[Service]\n[Install]\nWantedBy=multi-user.target\n", State: spec.UnitEnabled}},
		Modules: &spec.Modules{Blacklist: []string{"pcspkr"}},
	})
	ours := []string{"/etc/app.conf", "/etc/systemd/system/app.service", "/etc/systemd/system/multi-user.target.wants/app.service", "/etc/modprobe.d/zz-caisson-modules.conf"}
	for _, name := range append(ours, "/etc/by-hand") { // as an overlay shows what was written
		at := m.root + paths.RunUpper + "/upper" + name
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	st := m.sync()
	for _, name := range ours {
		if _, err := os.Lstat(m.root + name); err != nil {
			t.Errorf("it was not written: %v", err)
		}
	}
	if !slices.Equal(st.Foreign, []string{"/etc/by-hand"}) {
		t.Errorf("foreign: %q", st.Foreign)
	}
}
