// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// Sizes of images: of the one that all layers have, and of the one that each has for itself.
const (
	sharedSize = 1 << 20
	ownSize    = 64 << 10
)

// diskless is a machine without a state disk that runs the first of its layers.
type diskless struct {
	*swapping
	layers map[string]spec.Layer // by digest
	roots  int
}

func newDiskless(t *testing.T) *diskless {
	t.Helper()
	d := &diskless{swapping: &swapping{machine: newMachine(t)}, layers: map[string]spec.Layer{}}
	d.enrolled()
	d.memory(8<<30, 4<<30)
	d.a = d.push("1")
	d.publish(1, d.a, "10")
	d.boot()
	d.record(func(b *record.Boot) { b.Disk, b.Layer = "", d.layers[d.a] })
	loader := stage.Stager{Store: d.store(), From: d.Registry.Source(), Say: t.Logf, Talk: destination.StackTime}
	if layer, err := loader.Describe(t.Context(), d.a); err != nil {
		t.Fatal(err)
	} else if err := loader.Missing(t.Context(), stage.Images(layer)...); err != nil {
		t.Fatal(err)
	}
	d.apply()
	return d
}

// record changes the record of this boot.
func (d *diskless) record(change func(*record.Boot)) {
	d.t.Helper()
	b, err := record.Load(d.root)
	if err == nil {
		change(b)
		err = record.SaveBoot(d.root+paths.RunBoot, b)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// memory says what the machine has, in bytes.
func (d *diskless) memory(total, available int64) {
	d.write("/proc/meminfo", fmt.Sprintf("MemTotal:       %d kB\nMemFree:          123 kB\nMemAvailable:   %d kB\n", total>>10, available>>10))
}

// own is the content of the image that only one layer has.
func own(version string) []byte { return []byte(strings.Repeat(version, ownSize)[:ownSize]) }

// push puts a layer with two images into the registry.
func (d *diskless) push(version string, change ...func(*spec.Layer)) string {
	d.t.Helper()
	put := func(data []byte) spec.Blob {
		d.t.Helper()
		if err := d.Registry.PutData(d.t.Context(), oci.RepoLayer, oci.Describe("x", data)); err != nil {
			d.t.Fatal(err)
		}
		return spec.Blob{Digest: oci.Digest(data), Size: int64(len(data))}
	}
	l := spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: d.Bootstrap().Fleet, Version: version, Arch: runtime.GOARCH,
		Images: []spec.Image{{Name: "base", MediaType: "x", Blob: put(make([]byte, sharedSize))}, {Name: "packages", MediaType: "x", Blob: put(own(version))}},
		Kernel: spec.KernelBlob{Release: "6.12", Blob: put([]byte("kernel"))}, Initrd: put([]byte("initrd")), Packages: []spec.InstalledPackage{{Name: "systemd", Version: "257.9-1"}}}
	for _, c := range change {
		c(&l)
	}
	text, err := spec.Encode(l)
	if err != nil {
		d.t.Fatal(err)
	}
	config := put(text)
	manifest := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Config: oci.Descriptor{MediaType: oci.TypeLayerConfig, Digest: config.Digest, Size: config.Size}}
	for _, part := range append(stage.Images(l), stage.Kernel(l)...) {
		manifest.Layers = append(manifest.Layers, oci.Descriptor{MediaType: "x", Digest: part.Digest, Size: part.Size})
	}
	digest, err := d.Registry.PutManifest(d.t.Context(), oci.RepoLayer, oci.MediaTypeManifest, oci.Encode(manifest))
	if err != nil {
		d.t.Fatal(err)
	}
	d.layers[digest] = l
	return digest
}

func (d *diskless) store() *layers.Store {
	d.t.Helper()
	store, err := layers.OpenStore(d.root + paths.RunStore)
	if err != nil {
		d.t.Fatal(err)
	}
	return store
}

// has reports whether the image that only one layer has is in memory.
func (d *diskless) has(version string) bool {
	return d.store().Has(oci.Digest(own(version)), ownSize)
}

// held is how much memory blobs take, without what is small.
func (d *diskless) held() (bytes int64) {
	d.t.Helper()
	list, err := os.ReadDir(d.root + paths.RunStore + "/sha256")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, e := range list {
		if info, err := e.Info(); err != nil {
			d.t.Fatal(err)
		} else if info.Size() >= ownSize/2 {
			bytes += info.Size()
		}
	}
	return bytes
}

// stage does what the service does after it has asked the registry.
func (d *diskless) stage() error {
	d.t.Helper()
	n, err := Read(d.t.Context(), traced(session.Options{Root: d.root, Kernel: &d.kernel, Say: d.t.Logf}), d.bootstrap())
	if err != nil {
		d.t.Fatal(err)
	}
	defer n.Close() // only read
	return n.destination.Stage(d.t.Context())
}

// looks asks the registry, stages, and looks again.
func (d *diskless) looks() *spec.Status {
	d.t.Helper()
	d.sync()
	if err := d.stage(); err != nil {
		d.t.Fatal(err)
	}
	return d.sync()
}

// arrives soft-reboots into a root with its own record.
func (d *diskless) arrives(g state.Generation) {
	d.t.Helper()
	b, err := record.Load(d.root)
	if err != nil {
		d.t.Fatal(err)
	}
	d.roots++
	b.RootID, b.Upper, b.Generation, b.Layer = fmt.Sprint("next", d.roots), paths.RootUpper, g, d.layers[g.Layer]
	b.Live = record.Live{Had: b.Live.Had}
	if err := os.MkdirAll(filepath.Dir(d.root+paths.RootBoot), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := record.SaveBoot(d.root+paths.RootBoot, b); err != nil {
		d.t.Fatal(err)
	}
}

// goes is a soft-reboot to what waits.
func (d *diskless) goes() {
	d.t.Helper()
	soft := d.soft
	if class, why := d.reboot(); class != spec.ClassSoftReboot || d.soft != soft+1 {
		d.t.Fatalf("%s: %s", class, why)
	}
	g := *d.state().Best()
	if s := d.state().Staged; s != nil && s.Failed == "" {
		g = *s
	}
	d.arrives(g)
}

// What two layers share is not fetched and not held twice, and what the layer before had for
// itself goes when the next one has proved itself, however many come.
func TestMemoryHoldsWhatTwoLayersShareOnce(t *testing.T) {
	d := newDiskless(t)
	if got := d.held(); got != sharedSize+ownSize {
		t.Fatalf("at first %d bytes", got)
	}
	for i := 2; i < 5; i++ {
		version := fmt.Sprint(i)
		layer := d.push(version)
		d.publish(uint64(i), layer, "10")
		st := d.looks()
		if got := d.held(); got != sharedSize+2*ownSize || st.StagedBytes == nil || st.StagedBytes.Fetched != ownSize {
			t.Errorf("layer %s is staged: %d bytes, fetched %+v", version, got, st.StagedBytes)
		}
		const says = ": soft-reboot: the root is stacked"
		if reasons, err := os.ReadFile(d.root + paths.RebootReasons); err != nil || !strings.Contains(string(reasons), says) || !strings.Contains(st.ActivityDetail, says) {
			t.Errorf("reasons: %q, %v; status: %s", reasons, err, st.ActivityDetail)
		}
		d.goes()
		if !d.deadline() || !d.has(fmt.Sprint(i-1)) {
			t.Errorf("before layer %s has proved itself: deadline %v, the one before is here: %v", version, d.deadline(), d.has(fmt.Sprint(i-1)))
		}
		if st := d.apply(); st.Layer != layer || st.Generation != uint64(i) || st.Staged != "" || d.deadline() {
			t.Errorf("%+v, deadline %v", st, d.deadline())
		}
		if got := d.held(); got != sharedSize+ownSize || d.has(fmt.Sprint(i-1)) || !d.has(version) {
			t.Errorf("layer %s has proved itself: %d bytes, the one before is here: %v", version, got, d.has(fmt.Sprint(i-1)))
		}
	}
}

// Where two layers do not fit it is a reboot, which is said with the numbers, and nothing
// is fetched.
func TestTwoLayersThatDoNotFit(t *testing.T) {
	d := newDiskless(t)
	d.publish(2, d.push("2"), "10")
	const enough = 1<<30 + ownSize // an eighth is kept
	const says = "reboot: both layers do not fit into memory: the new images have 0.1 MB, and of 1073.8 MB that are available 1073.7 MB are kept for what runs"
	for range 2 { // what does not fit now may later
		d.memory(8<<30, enough-1024)
		st := d.looks()
		if reasons, err := os.ReadFile(d.root + paths.RebootReasons); err != nil || !strings.Contains(string(reasons), says) || !strings.Contains(st.ActivityDetail, says) {
			t.Errorf("reasons: %q, %v; status: %s", reasons, err, st.ActivityDetail)
		}
		if d.held() != sharedSize+ownSize {
			t.Errorf("%d bytes", d.held())
		}
	}
	if class, why := d.reboot(); class != spec.ClassReboot || class+": "+why != says || d.cold != 1 || d.soft != 0 {
		t.Errorf("%s: %s", class, why)
	}
	d.memory(8<<30, enough)
	d.looks()
	d.memory(8<<30, 0) // what is here takes no more
	d.goes()
}

// What could not be fetched whole leaves nothing in memory.
func TestAFetchThatEndsLeavesNothingInMemory(t *testing.T) {
	d := newDiskless(t)
	gone := spec.Image{Name: "gone", MediaType: "x", Blob: spec.Blob{Digest: oci.Digest([]byte("gone")), Size: 4}}
	layer := d.push("2", func(l *spec.Layer) { l.Images = append(l.Images, gone) })
	d.publish(2, layer, "10")
	d.sync()
	if err := d.stage(); err == nil || !strings.Contains(err.Error(), "stage generation 2") {
		t.Errorf("it is staged: %v", err)
	}
	if d.has("2") || d.held() != sharedSize+ownSize {
		t.Errorf("%d bytes are held", d.held())
	}
	if class, why := d.reboot(); class != spec.ClassReboot || !strings.Contains(why, "not staged") {
		t.Errorf("%s: %s", class, why)
	}
}

// A layer that is not waited for any more takes no memory.
func TestALayerThatNobodyGoesToTakesNoMemory(t *testing.T) {
	for name, c := range map[string]func(d *diskless){
		"another layer waits": func(d *diskless) { d.publish(3, d.push("3"), "10") },
		"none waits":          func(d *diskless) { d.publish(3, d.a, "10") },
		"the node is frozen":  func(d *diskless) { d.told(func(n *Node) error { return n.Freeze("", 0) }) },
		"a cold one leads to it": func(d *diskless) {
			d.Overlay(spec.Overlay{Core: spec.Core{Layer: d.state().Staged.Layer, KernelArgs: []string{"quiet"}}}, sign.Predicate{Generation: 3})
			d.confirm(fixture.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDiskless(t)
			d.publish(2, d.push("2"), "10")
			if d.looks(); !d.has("2") {
				t.Fatal("it was not staged")
			}
			c(d)
			if d.looks(); d.has("2") {
				t.Errorf("%d bytes are held", d.held())
			}
		})
	}
}

// judges looks until what is judged is decided, or something is started over.
func (d *diskless) judges() (st *spec.Status) {
	d.t.Helper()
	soft, cold := d.soft, d.cold
	o := traced(session.Options{Root: d.root, Kernel: &d.kernel, Runner: d, Say: d.t.Logf, Reboot: func(context.Context) error { d.cold++; return nil }, SoftReboot: func(_ context.Context, replug bool) error { d.soft++; d.replugs = replug; return nil }})
	for range 5 {
		wait, now, err := Judge(d.t.Context(), o, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		if now != nil {
			st = now
		}
		if wait == 0 || d.soft > soft || d.cold > cold {
			break
		}
		d.kernel.Sleep(d.t.Context(), wait)
	}
	return st
}

// A layer that does not pass its gates is left for the one before, which is still in memory,
// and is not tried again while the machine goes on.
func TestTheLayerBeforeIsStillInMemory(t *testing.T) {
	d := newDiskless(t)
	bad := d.push("2")
	d.publishGated(2, spec.Core{Layer: bad}, "20", 0)
	d.looks()
	d.goes()
	if st := d.apply(); st.Layer != bad || len(st.Checks) != 1 || !d.has("1") {
		t.Fatalf("it is judged: %+v; the layer before is here: %v", st, d.has("1"))
	}
	if d.replugs {
		t.Error("a layer that is not proved has the devices as they are")
	}
	d.judges()
	if !d.replugs {
		t.Error("the way back does not replug what the layer may have taken away")
	}
	if s := d.state(); d.soft != 2 || d.cold != 0 || s.Staged == nil || s.Staged.Failed == "" || s.Current.Layer != d.a || d.deadline() {
		t.Fatalf("%d soft-reboots, %d reboots, staged %+v, current %+v, deadline %v", d.soft, d.cold, s.Staged, s.Current, d.deadline())
	}
	events, _ := d.blackBox()
	if i := slices.IndexFunc(events, func(e spec.Event) bool { return e.Event == spec.EventGateFailed }); i < 0 || !strings.Contains(events[i].Did, "(soft-reboot), and does not try it again") {
		t.Errorf("the black box has %+v", events)
	}
	d.arrives(*d.state().Current)
	for range 2 {
		if st := d.apply(); st.Layer != d.a || st.Generation != 1 || st.Rejected == nil {
			t.Errorf("gone back: %+v", st)
		}
		if st := d.looks(); st.Layer != d.a || st.Generation != 1 || st.Rejected == nil || st.Sync != spec.SyncBehind || d.has("2") || d.held() != sharedSize+ownSize {
			t.Errorf("looked again: %+v, %d bytes", st, d.held())
		}
		if class, why := d.reboot(); class != spec.ClassReboot || !strings.Contains(why, "no other layer waits") || d.soft != 2 {
			t.Errorf("%s: %s", class, why)
		}
	}
}

// Where no soft-reboot leads back, what runs stays: the registry has the same for a reboot.
func TestWhereNoSoftRebootLeadsBack(t *testing.T) {
	d := newDiskless(t)
	d.publishGated(2, spec.Core{Layer: d.push("2")}, "20", 0)
	d.looks()
	d.goes()
	d.apply()
	d.write(paths.RebootReasons, "linux-image\n")
	if st := d.judges(); st == nil || st.Generation != 2 || st.Health != spec.HealthBroken || d.soft != 1 || d.cold != 0 || d.state().Staged.Failed != "" {
		t.Errorf("%+v, %d soft-reboots, %d reboots", st, d.soft, d.cold)
	}
}

// An operator's way back is fetched as what waits is, and the node stays there.
func TestARollBackInMemory(t *testing.T) {
	d := newDiskless(t)
	d.publish(2, d.push("2"), "10")
	d.looks()
	d.goes()
	d.apply()
	if d.told(func(n *Node) error {
		_, err := n.Rollback(t.Context(), "it is slow", 0)
		return err
	}); d.has("1") {
		t.Fatal("the layer before was not freed")
	}
	if st := d.looks(); !strings.Contains(st.ActivityDetail, "soft-reboot: ") || !d.has("1") || !d.has("2") {
		t.Errorf("on the way back: %s", st.ActivityDetail)
	}
	d.goes()
	for range 2 {
		if st := d.looks(); st.Layer != d.a || st.Generation != 1 || st.Tracking != spec.Held || d.has("2") || !d.has("1") {
			t.Errorf("%+v", st)
		}
	}
}

// A node without a state disk starts over by itself when the images are in memory to which
// a soft-reboot leads, and at once where it does not.
func TestASwapInMemoryWaitsForItsImages(t *testing.T) {
	for name, available := range map[string]int64{"soft-reboot": 4 << 30, "reboot": 0} {
		d := newDiskless(t)
		d.memory(8<<30, available)
		d.sync()
		w := &swapper{machine: d.machine, clock: opens.Add(-time.Hour), slot: spec.Slot{Max: 1, Directory: t.TempDir()}}
		w.offer(2, spec.Core{Layer: d.push("2")}, true)
		w.operate(0) // the slots of the boot before
		if name == "soft-reboot" {
			w.want(w.operate(time.Minute), spec.OperationWaiting, spec.ForStaging, "not staged", 0)
		}
		if err := d.stage(); err != nil {
			t.Fatal(err)
		}
		w.want(w.operate(2*time.Minute), spec.OperationRunning, "", "the machine reboots", 1)
	}
}
