// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/bootagent/tell/say"
	"github.com/caisson-os/caisson/internal/efivar"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

// swapper is a machine on which generation 1 runs, with a clock of its own.
type swapper struct {
	*machine
	clock   time.Time
	reboots int
	slot    spec.Slot
	noSlot  bool // of what it offers
}

var opens = time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)

func newSwapper(t *testing.T) *swapper {
	w := &swapper{machine: runningMachine(t), clock: opens.Add(-time.Hour), slot: spec.Slot{Max: 1, Directory: t.TempDir()}}
	w.place("/proc/cmdline", "quiet")
	return w
}

// place writes what the kernel shows in a file.
func (w *swapper) place(name, text string) {
	w.t.Helper()
	name = w.root + name
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

// offer publishes what takes a boot, and has the node sync.
func (w *swapper) offer(generation uint64, core spec.Core, swap bool) *spec.Status {
	w.t.Helper()
	return w.offerAs(spec.Overlay{Core: core, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}}, sign.Predicate{Generation: generation}, swap)
}

func (w *swapper) offerAs(o spec.Overlay, p sign.Predicate, swap bool) *spec.Status {
	w.t.Helper()
	if swap {
		o.Swap = &spec.LayerSwap{Windows: []string{"mon"}}
		if !w.noSlot {
			o.Swap.Slot = "g"
		}
		o.Maintenance = &spec.Maintenance{Horizon: opens.AddDate(0, 1, 0), Slots: map[string]spec.Slot{"g": w.slot}, Operations: []spec.Operation{},
			Windows: map[string]spec.Window{"mon": {StartGuard: 1800, Intervals: []spec.Interval{{From: opens, To: opens.Add(4 * time.Hour)}}}}}
	}
	o.SetNeeds()
	w.Overlay(o, p)
	w.confirm(time.Now())
	return w.act(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(w.t.Context()) })
}

func (w *swapper) act(do func(*Node) (*spec.Status, error)) *spec.Status {
	w.t.Helper()
	n, err := Open(w.t.Context(), traced(session.Options{Root: w.root, Kernel: &w.kernel, Runner: new(process.Group), Clock: func() time.Time { return w.clock }, Say: w.t.Logf,
		Reboot: func(context.Context) error { w.reboots++; return nil }}), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer n.Close() // the test is over
	st, err := do(n)
	if err != nil {
		w.t.Fatal(err)
	}
	return st
}

// operate sees to operations, at a time after the window opens.
func (w *swapper) operate(after time.Duration) *spec.Status {
	w.t.Helper()
	w.clock = opens.Add(after)
	return w.act(func(n *Node) (*spec.Status, error) {
		if _, err := n.Operate(w.t.Context()); err != nil {
			return nil, err
		}
		st, err := n.look.Status(w.t.Context())
		if err == nil {
			err = n.look.Keep(st)
		}
		return st, err
	})
}

// up writes the files that another boot leaves: the record of another root, and a ledger of an
// earlier boot.
func (w *swapper) up(g state.Generation) {
	w.t.Helper()
	w.entered("root2", g)
	id, err := session.KernelID()
	if err != nil {
		w.t.Fatal(err)
	}
	records, err := filepath.Glob(w.root + paths.State + "/ops/*/record.json")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range records {
		data, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(name, bytes.ReplaceAll(data, []byte(id), []byte("the boot before")), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	w.apply()
}

func (w *swapper) slotIsFree() bool {
	other := post.Holder{Node: "other"}
	err := other.Take(w.t.Context(), "g", w.slot)
	if err == nil {
		err = other.Release(w.t.Context(), "g", w.slot)
	}
	return err == nil
}

// want compares what the status says of the swap; state "" is that there is none.
func (w *swapper) want(st *spec.Status, state spec.OperationState, what, words string, reboots int) {
	w.t.Helper()
	var got spec.OperationStatus
	if s := say.Swap(st.Operations); s != nil {
		got = *s
	}
	if got.State != state || got.For != what || !strings.Contains(got.Detail, words) || w.reboots != reboots {
		w.t.Errorf("%+v, rebooted %d times; want %s for %q (%s), %d", got, w.reboots, state, what, words, reboots)
	}
}

// reject has the node reject what waits.
func (w *swapper) reject(why string) {
	w.t.Helper()
	s := w.state()
	s.Reject(*s.Staged, why, time.Now())
	folder, err := state.Open(w.root + paths.State)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := folder.Save(s); err != nil {
		w.t.Fatal(err)
	}
}

func args(words ...string) spec.Core {
	return spec.Core{Layer: layerNamed("a"), KernelArgs: words}
}

// TestASwap: what waits is entered in its window, with a slot, once; and everybody who
// asks hears for what it waits and until when.
func TestASwap(t *testing.T) {
	w := newSwapper(t)
	st := w.offer(2, args("quiet"), true)
	const says = "window mon opens at 2026-11-23 04:00 UTC"
	w.want(st, spec.OperationWaiting, spec.ForWindow, says, 0)
	if st.Activity != spec.ActivityWaiting(spec.ForWindow) || !strings.Contains(st.ActivityDetail, says) || !st.ActivityUntil.Equal(opens) {
		t.Errorf("activity %s (%s) until %s, since %s", st.Activity, st.ActivityDetail, st.ActivityUntil, st.ActivitySince)
	}
	if got := w.rebootReason(); !strings.HasPrefix(got, "caisson: generation 2: arguments") || !strings.Contains(got, says) {
		t.Errorf("a reboot is required: %q", got)
	}
	if st = w.operate(-time.Minute); st.ActivitySince.IsZero() {
		t.Error("nobody says since when it waits")
	}
	w.want(st, spec.OperationWaiting, spec.ForWindow, says, 0)
	w.want(w.operate(4*time.Hour), spec.OperationWaiting, spec.ForWindow, "no window opens before", 0)
	w.want(w.operate(40*24*time.Hour), spec.OperationWaiting, spec.ForWindow, "published again", 0)
	w.want(w.operate(0), spec.OperationRunning, "", "the machine reboots", 1)
	w.want(w.operate(time.Minute), spec.OperationRunning, "", "the machine reboots", 1)
	if w.slotIsFree() {
		t.Error("the slot is free before the machine is up again")
	}
	w.up(*w.state().Staged)
	w.want(w.operate(5*time.Minute), "", "", "", 1)
	if !w.slotIsFree() || w.state().Current.Generation != 2 {
		t.Errorf("free %v, current %+v", w.slotIsFree(), w.state().Current)
	}
	w.want(w.operate(6*time.Minute), "", "", "", 1)
}

// TestASwapNeedsItsPolicy: without one a node waits for somebody, as ever; and what was
// published last says whether and when.
func TestASwapNeedsItsPolicy(t *testing.T) {
	w := newSwapper(t)
	st := w.offer(2, args("quiet"), false)
	w.want(st, "", "", "", 0)
	if st.Activity != spec.ActivityWaiting("reboot") {
		t.Errorf("activity %s", st.Activity)
	}
	w.want(w.operate(0), "", "", "", 0)
	w.offer(3, args("quiet"), true)
	w.want(w.operate(-time.Minute), spec.OperationWaiting, spec.ForWindow, "", 0)
	w.offer(4, args("quiet"), false)
	w.want(w.operate(0), "", "", "", 0)
	w.offer(5, spec.Core{Layer: layerNamed("a")}, true) // what runs
	w.want(w.operate(0), "", "", "", 0)
}

// TestASwapHeeds what else keeps a node as it is: a pause, an operator's hold, a
// rejection.
func TestASwapHeeds(t *testing.T) {
	w := newSwapper(t)
	w.offer(2, args("quiet"), true)
	w.told(func(n *Node) error { return n.Pause("a disk is replaced", 0) })
	w.want(w.operate(0), spec.OperationWaiting, "", "", 0)
	w.told(func(n *Node) error { return n.Resume() })
	w.told(func(n *Node) error { return n.Freeze("it is looked at", 0) })
	w.want(w.operate(0), "", "", "", 0)
	w.told(func(n *Node) error { return n.Forward("") })
	w.reject("it hangs")
	w.want(w.operate(0), "", "", "", 0)
	w.offer(3, args("quiet", "splash"), true)
	w.want(w.operate(0), spec.OperationRunning, "", "", 1)
}

// TestAFailedSwapIsRemembered: what came up with what ran before is not tried again since an
// operator held the node meanwhile; it is when it was published again, or somebody says so.
func TestAFailedSwapIsRemembered(t *testing.T) {
	holds := map[string]func(*Node) error{
		"freeze": func(n *Node) error { return n.Freeze("", 0) },
		"rollback": func(n *Node) error {
			_, err := n.Rollback(t.Context(), "", 0)
			return err
		},
		"pin": func(n *Node) error {
			_, err := n.Pin(t.Context(), 2, "", 0)
			return err
		},
	}
	for name, hold := range holds {
		t.Run(name, func(t *testing.T) {
			w, runs := newSwapper(t), spec.Core{Layer: layerNamed("a")}
			w.noSlot = true
			w.publish(2, layerNamed("a"), "20")
			w.sync()
			w.offer(3, args("quiet"), true)
			w.want(w.operate(0), spec.OperationRunning, "", "", 1)
			w.up(*w.state().Current)
			w.want(w.operate(5*time.Minute), spec.OperationFailed, "", "came up with what it ran before", 1)
			w.told(hold)
			w.want(w.operate(6*time.Minute), "", "", "", 1)
			w.sync()
			w.want(w.operate(7*time.Minute), "", "", "", 1)
			w.told(func(n *Node) error { return n.Forward("") })
			w.operate(8 * time.Minute)
			w.sync()
			w.want(w.operate(9*time.Minute), spec.OperationFailed, "", "came up with what it ran before", 1)
			w.offer(4, runs, true) // somebody takes it back, and publishes it again
			w.want(w.operate(10*time.Minute), "", "", "", 1)
			w.offer(5, args("quiet"), true)
			w.want(w.operate(11*time.Minute), spec.OperationRunning, "", "", 2)
			w.up(*w.state().Current)
			w.want(w.operate(12*time.Minute), spec.OperationFailed, "", "came up with what it ran before", 2)
			w.act(func(n *Node) (*spec.Status, error) { return n.Retry(t.Context()) })
			w.want(w.operate(13*time.Minute), spec.OperationRunning, "", "", 3)
		})
	}
}

// TestWhatWasRejectedStaysSo: a node that goes back, and forward again, does not try again
// what it has rejected; it does when somebody says so.
func TestWhatWasRejectedStaysSo(t *testing.T) {
	w := newSwapper(t)
	w.publish(2, layerNamed("a"), "20")
	w.sync()
	w.offer(3, args("quiet"), true)
	w.reject("it hangs")
	if st, err := w.rollback(); err != nil || st.Generation != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	w.told(func(n *Node) error { return n.Forward("") })
	st := w.act(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(t.Context()) })
	if st.Rejected == nil || st.Rejected.Generation != 3 || st.Rejected.Reason != "it hangs" {
		t.Errorf("rejected: %+v; %s: %s", st.Rejected, st.Sync, st.SyncDetail)
	}
	w.want(w.operate(0), "", "", "", 0)
	w.act(func(n *Node) (*spec.Status, error) { return n.Retry(t.Context()) })
	w.want(w.operate(time.Minute), spec.OperationRunning, "", "", 1)
}

// TestASwapOutOfWhatIsRejected: a hold does not keep what the fleet lets nobody run, in
// whatever way the node leaves it; and what the fleet rejects is not waited for.
func TestASwapOutOfWhatIsRejected(t *testing.T) {
	w := newSwapper(t)
	w.offer(2, args("quiet"), true)
	w.act(func(n *Node) (*spec.Status, error) { return nil, n.Freeze("", 0) })
	w.want(w.operate(0), "", "", "", 0)
	w.Current(spec.Fleet{Reject: []string{w.state().Current.Overlay}}, time.Now())
	w.act(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(t.Context()) })
	w.want(w.operate(0), spec.OperationRunning, "", "", 1)

	w = newSwapper(t)
	w.offer(2, args("quiet"), true)
	w.Current(spec.Fleet{Reject: []string{w.state().Staged.Overlay}}, time.Now())
	w.act(func(n *Node) (*spec.Status, error) {
		if st, err := n.cycle.Sync(t.Context()); err == nil {
			t.Errorf("what is rejected was accepted: %+v", st)
		}
		return nil, nil
	})
	w.want(w.operate(0), "", "", "", 0)
	if got := w.rebootReason(); got != "" {
		t.Errorf("a reboot is required: %q", got)
	}
}

// layerOf is a layer with a kernel of a release: what is staged of it, its image last.
func layerOf(t *testing.T, release string) (manifest []byte, parts [][]byte) {
	t.Helper()
	image := oci.Describe("application/vnd.caisson.image.v1.squashfs", []byte("image"))
	kernel := oci.Describe("application/vnd.caisson.kernel.v1", []byte("kernel"))
	blob := func(d oci.Descriptor) spec.Blob { return spec.Blob{Digest: d.Digest, Size: d.Size} }
	text, err := spec.Encode(spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: fixture.Name, Arch: runtime.GOARCH,
		Images: []spec.Image{{Name: "base", Blob: blob(image)}}, Kernel: spec.KernelBlob{Release: release, Blob: blob(kernel)}, Initrd: blob(kernel)})
	if err != nil {
		t.Fatal(err)
	}
	config, recipe := oci.Describe(oci.TypeLayerConfig, text), oci.Describe("application/vnd.caisson.recipe.v1+json", []byte("{}"))
	manifest = oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: config.Bare(),
		Layers: []oci.Descriptor{image.Bare(), kernel.Bare(), recipe.Bare()}})
	return manifest, [][]byte{manifest, text, []byte("kernel"), []byte("image")}
}

// TestASwapWaitsForItsLayer to be on the state disk: the loader gives it a minute.
func TestASwapWaitsForItsLayer(t *testing.T) {
	w := newSwapper(t)
	manifest, parts := layerOf(t, "")
	w.offer(2, spec.Core{Layer: oci.Digest(manifest)}, true)
	store, err := layers.OpenStore(w.root + paths.State + "/store")
	if err != nil {
		t.Fatal(err)
	}
	// Nobody stages the recipe.
	for _, data := range parts {
		w.want(w.operate(0), spec.OperationWaiting, spec.ForStaging, "not on the state disk", 0)
		if err := store.Put(oci.Digest(data), data); err != nil {
			t.Fatal(err)
		}
	}
	w.want(w.operate(0), spec.OperationRunning, "", "the machine reboots", 1)
	w.up(state.Generation{Generation: 1, Overlay: w.state().Current.Overlay, Layer: layerNamed("a")}) // the loader fell back
	w.want(w.operate(5*time.Minute), spec.OperationFailed, "", "came up with what it ran before", 1)
	w.want(w.operate(time.Hour), spec.OperationFailed, "", "came up with what it ran before", 1)
}

// TestASwapIntoAKernelThatFirmwareDoesNotStart does not begin, and says why: a loader would refuse it.
// One of the release that runs is entered where the loader entered that one, and else never.
func TestASwapIntoAKernelThatFirmwareDoesNotStart(t *testing.T) {
	for name, row := range map[string]struct {
		release, line string
		refused       bool
	}{
		"another release":                  {"6.99", "quiet", true},
		"the same release, behind a kexec": {"", "quiet " + spec.KexecMarker, true},
		"the same release, without one":    {"", "quiet", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSwapper(t)
			w.place("/proc/cmdline", row.line)
			manifest, parts := layerOf(t, row.release)
			w.offer(2, spec.Core{Layer: oci.Digest(manifest)}, true)
			store, err := layers.OpenStore(w.root + paths.State + "/store")
			if err != nil {
				t.Fatal(err)
			}
			for _, data := range parts {
				if err := store.Put(oci.Digest(data), data); err != nil {
					t.Fatal(err)
				}
			}
			verifies := func(is byte) {
				t.Helper()
				w.place(efivar.Dir+"/"+efivar.SecureBoot.File(), string([]byte{6, 0, 0, 0, is}))
			}
			verifies(1)
			if row.refused {
				w.want(w.operate(0), spec.OperationWaiting, spec.ForStaging, "the firmware, which verifies, would not start the layer's kernel", 0)
				w.act(func(n *Node) (*spec.Status, error) {
					if err := n.Stage(t.Context()); refusal.Of(err) != refusal.Kernel {
						t.Errorf("%v", err)
					}
					return nil, nil
				})
				verifies(0)
			}
			w.want(w.operate(0), spec.OperationRunning, "", "the machine reboots", 1)
		})
	}
}

// TestADisklessNodeDoesNotLoop: what the registry had when it came up it does not start
// over into, and into what came later once.
func TestADisklessNodeDoesNotLoop(t *testing.T) {
	w := newSwapper(t)
	w.sync()
	diskless := func(boots bool) {
		t.Helper()
		w.recorded(func(b *record.Boot) {
			b.Disk = ""
			if boots {
				b.Live.Had = ""
			}
		})
	}
	diskless(false)
	w.offer(2, args("quiet"), true)
	w.operate(0) // the slots of the boot before
	w.want(w.operate(time.Minute), spec.OperationRunning, "", "the machine reboots", 1)
	for _, name := range []string{"/ops"} { // the boot forgets
		if err := os.RemoveAll(w.root + paths.State + name); err != nil {
			t.Fatal(err)
		}
	}
	diskless(true) // and came up with generation 1
	w.act(func(n *Node) (*spec.Status, error) { return n.cycle.Sync(t.Context()) })
	for minutes := range 5 {
		w.want(w.operate(time.Duration(5+minutes)*time.Minute), spec.OperationCannot, "", "another root started", 1)
	}
	w.offer(3, args("quiet", "splash"), true)
	w.operate(20 * time.Minute)
	w.want(w.operate(21*time.Minute), spec.OperationRunning, "", "the machine reboots", 2)
}

// ahead offers a value for the running layer and another layer that waits.
func (w *swapper) ahead(o spec.Overlay) *spec.Status {
	w.t.Helper()
	o.Core, o.Items = layer("b"), spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "20"}}}
	return w.offerAs(o, sign.Predicate{Generation: 2, RunsOn: []string{layerNamed("a")}}, true)
}

// TestASwapWaitsForChecks: a boot into what waits does not cut short what runs and is judged.
func TestASwapWaitsForChecks(t *testing.T) {
	w := newSwapper(t)
	w.ahead(spec.Overlay{Gates: &spec.Gates{Checks: []spec.HealthCheck{{Name: "ready", File: "/ready", Timeout: 1, Interval: 1, Retries: 5}}}})
	w.want(w.operate(0), spec.OperationWaiting, spec.ForGates, "generation 2 has to pass its gates", 0)
	w.ready("")
	w.judge(5)
	w.want(w.operate(time.Minute), spec.OperationWaiting, spec.ForStaging, "not on the state disk", 0)
}

// TestASwapWaitsForAConfirmation: what may be undone is not started over into.
func TestASwapWaitsForAConfirmation(t *testing.T) {
	w := newSwapper(t)
	w.ahead(spec.Overlay{Confirm: &spec.Confirm{Within: 3600}})
	w.want(w.operate(0), "", "", "", 0)
	if got := w.swappiness(""); got != "20" {
		t.Errorf("swappiness %s: nothing is tried", got)
	}
	w.act(func(n *Node) (*spec.Status, error) { return nil, n.Confirm(t.Context()) })
	w.want(w.operate(time.Minute), spec.OperationWaiting, spec.ForStaging, "not on the state disk", 0)
}

// TestNoSwapThatNothingRemembers: where the state disk takes no writes, a root that does not
// come up would be tried for ever.
func TestNoSwapThatNothingRemembers(t *testing.T) {
	w := newSwapper(t)
	w.offer(2, args("quiet"), true)
	w.recorded(func(b *record.Boot) { b.ReadOnly = true })
	w.want(w.operate(0), spec.OperationCannot, "", "the state disk takes no writes", 0)
}
