// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// byItself are edits of the quickstart: its nodes reboot by themselves into another
// layer, in a window with a slot, and mark when they are drained and when that is over.
func byItself(opens string) []string {
	return []string{
		"layer:\n", "layer:\n  persist: [/home]\n",
		"machine:\n", `health:
  - {name: ready, file: /run/ready, interval: 2s, retries: 1000}
swap:
  - windows: [night]
    slot: {group: metal, max: 1, fleetlock: "http://` + guestFleet + `", spread: 1s}
    drain:
      check: {argv: [/usr/bin/test, -e, /home/admin/drained], timeout: 1m}
      exec: {argv: [/bin/sh, -c, "echo drained | tee /home/admin/drained >>/home/admin/marks; sync"], timeout: 1m}
      undo: {argv: [/bin/sh, -c, "rm /home/admin/drained; echo undone >>/home/admin/marks; sync"], timeout: 1m}
    soak: 10s
machine:
  agent: {poll: 1m, report: {url: "http://` + guestFleet + `", interval: 10s}}
`,
		"              vm.swappiness: 1\n", `              vm.swappiness: 1
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: UTC, duration: 4h, ` + opens + `}
`,
	}
}

// opening says in a window that it opens at a time.
func opening(at time.Time) string { return at.Format(`opens: [{date: 2006-01-02, at: "15:04"}]`) }

// TestLongSwap is a node that reboots into another layer by itself: in its window, with
// the slot that another gives back, drained, and once, though its power goes while it
// reboots; and into the layer before in the same way, where nobody disturbs it.
func TestLongSwap(t *testing.T) {
	require.Long(t)
	tomorrow := time.Now().UTC().AddDate(0, 0, 1)
	f := &daily{Fleet: fleet(t, byItself(opening(tomorrow))...), day: tomorrow}
	f.serveFleet(t, "--unproven-slots")
	f.alpha = f.byHand(t, f.withDisk(t))
	f.alpha.Forwards[guestFleet] = f.page
	layers := [2]string{f.index(t)}
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	layers[1] = f.index(t)

	m := f.start(t, f.alpha)
	s := f.ready(t, m)
	setClock(t, s, "")
	m, s = f.swapsWithACut(t, m, s, layers[1])
	f.swaps(t, m, s, layers[0])
}

// swapsWithACut has a node swap as soon as it may, and pulls the cord then.
func (f *daily) swapsWithACut(t *testing.T, m *machine.Machine, s *machine.Session, layer string) (*machine.Machine, *machine.Session) {
	t.Helper()
	before := status(t, s)
	f.publish(t, "--layer", layer)
	ask(t, s)
	stands(t, s, spec.LayerSwapName, spec.OperationWaiting, spec.ForWindow, "window night opens")

	f.asBeta(t, "pre-reboot")
	opens := time.Now().UTC().Truncate(time.Minute).Add(3 * time.Minute)
	f.edit(t, opening(f.day), opening(opens))
	f.publish(t, "--layer", layer)
	ask(t, s)
	stands(t, s, spec.LayerSwapName, spec.OperationWaiting, spec.ForSlot, "beta")
	if now, err := strconv.ParseInt(run(t, s, "date +%s"), 10, 64); err != nil || now < opens.Unix() {
		t.Errorf("it asked for a slot before its window opened at %s: now %d, %v", opens, now, err)
	}
	marks(t, s, "")
	if st := status(t, s); st.RootID != before.RootID || st.Layer != before.Layer {
		t.Errorf("without a slot: %+v", st)
	}

	from := m.Console.Len()
	f.asBeta(t, "steady-state")
	waitFor(t, m, from, "Soft-rebooting")
	after := rand.N(10 * time.Second)
	time.Sleep(after)
	m.PowerCut()
	t.Logf("cut %v after the soft-reboot began", after)

	f.alpha.Name = "alpha-cut"
	m = f.start(t, f.alpha)
	s = f.login(t, m)
	if o := stands(t, s, spec.LayerSwapName, spec.OperationWaiting, spec.ForGates, "ready"); o.Slot != "metal" {
		t.Errorf("after a power cut the slot is not kept: %+v", o)
	}
	if got := f.holder(t); !strings.Contains(got, "alpha") {
		t.Errorf("holder of the slot: %s", got)
	}
	marks(t, s, "drained")
	run(t, s, "sudo touch /run/ready")
	f.swapped(t, s, before.Layer)
	marks(t, s, "drained undone")
	return m, s
}

// swaps has a node find a layer and swap to it, all by itself.
func (f *daily) swaps(t *testing.T, m *machine.Machine, s *machine.Session, layer string) {
	t.Helper()
	const kernel = "cat /proc/sys/kernel/random/boot_id"
	setClock(t, s, "")
	before, ran := run(t, s, kernel), status(t, s).Layer
	from := m.Console.Len()
	f.publish(t, "--layer", layer)
	waitFor(t, m, from, "Soft-rebooting")
	waitFor(t, m, from, "login:")
	s = f.login(t, m)
	f.swapped(t, s, ran)
	marks(t, s, "drained drained undone undone")
	if after := run(t, s, kernel); after != before {
		t.Error("the machine was started over")
	}
}

// swapped waits until a node is well in another layer than before, and has nothing taken
// any more.
func (f *daily) swapped(t *testing.T, s *machine.Session, before string) {
	t.Helper()
	var st spec.Status
	var slots string
	if !becomes(s.Console, func() bool {
		st, slots = status(t, s), f.holder(t)
		waits := slices.ContainsFunc(st.Operations, func(o spec.OperationStatus) bool { return o.Name == spec.LayerSwapName })
		return !waits && strings.HasPrefix(slots, "metal: 0 of 1")
	}) {
		t.Fatalf("the swap is not over: slots %s, %+v", slots, st.Operations)
	}
	if st.Layer == before || st.Health != spec.HealthOK || st.Sync != "current" {
		t.Errorf("after the swap from layer %s: %+v", before, st)
	}
}

// asBeta asks for beta's slot, or gives it back, as any client of FleetLock would.
func (f *daily) asBeta(t *testing.T, act string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.page+"/v1/"+act, strings.NewReader(`{"client_params": {"id": "beta", "group": "metal"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Fleet-Lock-Protocol", "true")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s as beta: %s, %v", act, resp.Status, err)
	}
}
