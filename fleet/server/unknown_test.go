// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"html"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/spec"
	authored "github.com/caisson-os/caisson/spec/site"
)

// newRack returns machines, as they asked; the last is the first from another address.
func newRack(n int) (list []unknown.Machine) {
	at := time.Now().Add(-time.Hour)
	for i := range n {
		list = append(list, unknown.Machine{From: fmt.Sprintf("192.0.2.%d", i), MACs: []string{fmt.Sprintf("52:54:00:00:00:%02x", i)}, Names: []string{"<b>null"}, First: at, Last: at})
	}
	return append(list, unknown.Machine{From: "198.51.100.1", MACs: list[0].MACs, First: at, Last: at})
}

// TestUnknownMachines: fifty machines are copied at once, and what is copied is the nodes of a site.
func TestUnknownMachines(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	if _, text := s.ask("GET", "/unknown", nil); !strings.Contains(text, "does not know who asked in vain") {
		t.Errorf("without a list:\n%s", text)
	}
	var wrong error
	s.server.o.Unknown = func() ([]unknown.Machine, error) { return newRack(50), wrong }
	_, text := s.ask("GET", "/unknown", nil)
	parts := strings.Split(text, `data-copy="`)
	all, _, _ := strings.Cut(parts[len(parts)-1], `"`)
	site := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\nnodes:\n" + html.UnescapeString(all) + "\n"
	if read, r := authored.Parse(fstest.MapFS{"site.yaml": {Data: []byte(site)}}, "site.yaml"); r.Err() != nil || len(read.Nodes()) != 50 {
		t.Errorf("%v in\n%s", r.Err(), site)
	}
	if strings.Contains(text, "<b>null") || len(parts) != 52 {
		t.Errorf("%d rows to copy in\n%s", len(parts)-1, text)
	}
	s.server.o.Unknown = func() ([]unknown.Machine, error) {
		rack := newRack(50)
		for i := range rack {
			rack[i].Names = []string{"localhost"} // as DHCP has it
		}
		return rack, wrong
	}
	if _, text := s.ask("GET", "/unknown", nil); strings.Count(text, "data-copy") != 51 || !strings.Contains(text, "{name: localhost-50, match: ") {
		t.Errorf("of machines of one name:\n%s", text)
	}
	wrong = errors.New("unknown machines: no <list>")
	if _, text := s.ask("GET", "/unknown", nil); !strings.Contains(text, "no &lt;list&gt;") {
		t.Errorf("with a list that cannot be read:\n%s", text)
	}
}

// TestReplacePage: what a machine still has is shown with commands, and the machines that may come, of
// which a liar's words are text and never a command.
func TestReplacePage(t *testing.T) {
	rows := rowsOf("n1")
	held := rows["n1"]
	held.Holds = []spec.Hold{{Kind: spec.HoldFreeze, Reason: "a <disk>"}}
	rows["n1"] = held
	plan := &spec.RolloutPlan{Name: "october", Waves: []spec.Wave{{Name: "first", Nodes: map[string]string{"n1": "x"}}}}
	s := newSiteWith(t, rows, false, rollout.StateOf(plan, spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: 1}}}),
		rollout.StateOf(&spec.RolloutPlan{Name: "september", Waves: plan.Waves}, spec.Rollout{Phase: spec.RolloutDone, Waves: []spec.RolloutWave{{Begun: 1, Done: 2}}}))
	for _, key := range []*ecdsa.PrivateKey{newKey(t), newKey(t)} {
		if err := s.take(t.Context(), sealed(t, key, "n1", 1, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.hub.TakeSlot(t.Context(), "default", "n1", hub.Proof{}); err != nil {
		t.Fatal(err)
	}
	if status, text := s.ask("GET", "/replace/n1", nil); status != 200 || !strings.Contains(text, "does not know who asked in vain") {
		t.Errorf("%d\n%s", status, text)
	}
	asks := newRack(30)
	asks[7].Names = []string{"n1"}
	asks = append(asks, unknown.Machine{From: "203.0.113.1", Names: []string{"$(reboot)"}}, unknown.Machine{From: "203.0.113.2", Names: []string{"n1", "<b>"}, UUIDs: []string{"11111111-2222-3333-4444-555555555555"}})
	s.server.o.Unknown = func() ([]unknown.Machine, error) { return asks, nil }
	status, text := s.ask("GET", "/replace/n1", nil)
	for _, want := range []string{"<td>key</td>", "another one reports", "caisson fleet accept n1 ", "<td>slot</td>", "caisson fleet slots release default n1 --reason &#34;…&#34; --at http://127.0.0.1:",
		"<td>hold</td>", "freeze: a &lt;disk&gt;; it stays", "caisson forward registry.example/metal --site site.yaml --node n1 --key keys/operator.key",
		"october, wave first, which is running", "caisson rollout status registry.example/metal --site site.yaml october</code>",
		"caisson fleet replace site.yaml n1 --machine 52:54:00:00:00:07 --at http://127.0.0.1:", "caisson fleet replace site.yaml n1 --dry-run --at "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if n := strings.Count(text, "<td data-is=\"from\">"); status != 200 || n != mostFit || strings.Contains(text, "september") || strings.Contains(text, "reboot") || strings.Contains(text, "<b>") {
		t.Errorf("%d, %d machines in\n%s", status, n, text)
	}
	if a, b := strings.Index(text, "192.0.2.7<"), strings.Index(text, "192.0.2.0<"); a < 0 || b < a {
		t.Errorf("those that asked by its name are not first:\n%s", text)
	}
	if status, _ := s.ask("GET", "/replace/n2", nil, "Accept", "text/html"); status != 404 {
		t.Errorf("no such node: %d", status)
	}
	if _, text := s.ask("GET", "/v1/unknown", nil); !strings.Contains(text, `{"known":true,"machines":[{"from":"192.0.2.0",`) {
		t.Errorf("%.300s", text)
	}
}
