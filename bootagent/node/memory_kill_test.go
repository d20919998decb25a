// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/powercut"
	"github.com/caisson-os/caisson/test/require"
)

// goesAlone is all that an agent does until systemd ends it: it asks, stages, and goes.
func (d *diskless) goesAlone() {
	d.t.Helper()
	n, err := Open(d.t.Context(), traced(session.Options{Root: d.root, Kernel: &d.kernel, Runner: d, Say: d.t.Logf, SoftReboot: func(context.Context, bool) error { return nil }}), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err = n.cycle.Sync(d.t.Context()); err == nil {
		_, _, err = n.destination.Reboot(d.t.Context())
	}
	if err := errors.Join(err, n.Close()); err != nil {
		d.t.Fatal(err)
	}
}

// killInMemory kills an agent that goes to another layer after each of its calls that change
// a file, and looks at every so many of the results.
func killInMemory(t *testing.T, every int) {
	require.Slow(t)
	if words, is := powercut.Recorded(t); is {
		(&diskless{swapping: &swapping{machine: &machine{t: t, root: words[0]}}}).goesAlone()
		return
	}
	d := newDiskless(t)
	if dir, err := os.MkdirTemp("/dev/shm", "caisson-"); err == nil { // where fsync(2) costs nothing
		t.Cleanup(func() { _ = os.RemoveAll(dir) }) // memory that the next start of the machine gives back
		before, err := powercut.Read(d.root)
		if err := errors.Join(err, before.Write(dir)); err != nil {
			t.Fatal(err)
		}
		d.root = dir
	}
	next := d.push("2")
	d.publish(2, next, "10")
	kills := powercut.Record(t, d.root, t.Name(), d.root).Kills()
	soft, cold := 0, 0
	for at := 0; at < len(kills); at += every {
		again := &diskless{swapping: &swapping{machine: &machine{Fleet: d.Fleet, t: t, root: d.root + "-again"}}, layers: d.layers}
		t.Cleanup(func() { _ = os.RemoveAll(again.root) }) // as above
		if err := errors.Join(os.RemoveAll(again.root), kills[at].Tree.Write(again.root)); err != nil {
			t.Fatal(err)
		}
		again.looks()
		if again.has("2") != (again.state().Staged.Attempts == 0) {
			t.Errorf("%d attempts, and the image that waits is here: %v", again.state().Staged.Attempts, again.has("2"))
		}
		switch class, why := again.reboot(); class {
		case spec.ClassSoftReboot:
			soft++
			again.arrives(*again.state().Staged)
			if st := again.apply(); st.Layer != next || again.held() != sharedSize+ownSize || again.has("1") || again.deadline() {
				t.Errorf("%+v, %d bytes, deadline %v", st, again.held(), again.deadline())
			}
		default:
			if cold++; !strings.Contains(why, "did not come up") || again.held() != sharedSize+ownSize {
				t.Errorf("%s: %s, %d bytes", class, why, again.held())
			}
		}
		if t.Failed() {
			t.Fatal(kills[at])
		}
	}
	t.Logf("killed at %d places; of those looked at %d went softly, %d were counted and did not come up", len(kills), soft, cold)
	if soft == 0 || cold == 0 {
		t.Error("it tests too little")
	}
}

// An agent that is killed while it fills memory, or goes, leaves no images that nobody goes
// to, and an attempt that was counted counts.
func TestKilledWhileMemoryIsFilled(t *testing.T) { killInMemory(t, 3) }

func TestLongKilledAtEveryCallWhileMemoryIsFilled(t *testing.T) {
	if !powercut.IsRecorded() {
		require.Long(t)
	}
	killInMemory(t, 1)
}

// A node does what the plan says of any two layers and overlays, with a state disk
// and without one, and what it says before.
func TestTheClassOfAMoveIsThatOfThePlan(t *testing.T) {
	layerParts := []func(*spec.Layer){
		func(l *spec.Layer) { l.Kernel.Release = "6.13" },
		func(l *spec.Layer) { l.Kernel.Blob = l.Images[0].Blob },
		func(l *spec.Layer) { l.AppArmor.Profiles = []spec.LoadedProfile{{Name: "p"}} },
		func(l *spec.Layer) { l.Features = []string{"other"} },
		func(l *spec.Layer) { l.Packages[0].Version = "252.1-1" },
		func(l *spec.Layer) { l.Packages = append(l.Packages, spec.InstalledPackage{Name: "vim"}) },
	}
	overlayParts := []func(*spec.Overlay){
		func(o *spec.Overlay) { o.KernelArgs = []string{"quiet"} },
		func(o *spec.Overlay) { o.Persist = []string{"/home"} },
		func(o *spec.Overlay) { o.Network.NTP = []string{"ntp.example.org"} },
		func(o *spec.Overlay) { o.Items.Sysctl = nil },
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, seed))
	for _, disk := range []string{"", "/dev/vda1"} {
		d := newDiskless(t)
		cmdline := filepath.Join(d.root, "proc/cmdline") // of which a kernel of the same release asks
		if err := errors.Join(os.MkdirAll(filepath.Dir(cmdline), 0o755), os.WriteFile(cmdline, []byte("quiet"), 0o644)); err != nil {
			t.Fatal(err)
		}
		d.record(func(b *record.Boot) { b.Disk = disk })
		first, seen := d.layers[d.a], map[string]int{}
		for generation := uint64(2); generation < 14; generation++ {
			version := string(rune('a' + generation))
			digest := d.push(version, func(l *spec.Layer) {
				for _, part := range layerParts {
					if random.IntN(3*len(layerParts)) == 0 {
						part(l)
					}
				}
			})
			before := spec.Overlay{Core: spec.Core{Layer: d.a}, Items: spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: "10"}}}}
			after := before
			after.Layer = digest
			for _, part := range overlayParts {
				if random.IntN(3*len(overlayParts)) == 0 {
					part(&after)
				}
			}
			layer := d.layers[digest]
			plan, _ := spec.LayerMove(&first, &layer)
			for _, e := range spec.Changes(&before, &after) {
				if e.Part != spec.PartLayer && spec.Worse(e.Class, plan) {
					plan = e.Class
				}
			}
			d.Overlay(after, sign.Predicate{Generation: generation})
			d.confirm(fixture.Now())
			st := d.looks()
			reasons, err := os.ReadFile(d.root + paths.RebootReasons)
			if err != nil || !strings.Contains(string(reasons), ": "+plan+": ") || !strings.Contains(st.ActivityDetail, " is staged: "+plan+": ") {
				t.Errorf("seed %d, disk %q: the plan says %s; the node that it waits for %q (%v), its status %q", seed, disk, plan, reasons, err, st.ActivityDetail)
			}
			if class, why := d.reboot(); class != plan {
				t.Errorf("seed %d, disk %q: the plan says %s, the node goes by %s: %s", seed, disk, plan, class, why)
			}
			seen[plan]++
		}
		t.Logf("disk %q: %v", disk, seen)
	}
}
