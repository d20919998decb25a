// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

// machine is a booted node below a directory, and its fleet.
type machine struct {
	*fixture.Fleet
	t      *testing.T
	root   string
	kernel kernel
}

// kernel is a clock of which the time that is waited for goes by at once.
type kernel struct{ passed atomic.Int64 }

// Up implements trial.Clock.
func (k *kernel) Up() time.Duration { return uptime.Now() + time.Duration(k.passed.Load()) }

// Sleep implements trial.Clock.
func (k *kernel) Sleep(_ context.Context, d time.Duration) { k.passed.Add(int64(d)) }

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{Fleet: fixture.NewFleet(t), t: t, root: t.TempDir()}
	for name, text := range map[string]string{"/proc/sys/vm/swappiness": "60\n", "/proc/self/mountinfo": "", "/etc/security/limits.d/x": "", "/dev/x": "", paths.Run + "/x": ""} {
		if err := os.MkdirAll(filepath.Dir(m.root+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(m.root+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) bootstrap() *spec.Bootstrap {
	b := m.Bootstrap()
	return &b
}

// publish signs an overlay with one sysctl.
func (m *machine) publish(generation uint64, layer, swappiness string) {
	m.t.Helper()
	m.publishItems(generation, layer, spec.Items{Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: swappiness}}})
}

func (m *machine) publishItems(generation uint64, layer string, items spec.Items) {
	m.t.Helper()
	m.Overlay(spec.Overlay{Core: spec.Core{Layer: layer}, Items: items}, sign.Predicate{Generation: generation})
	m.confirm(fixture.Now())
}

// confirm writes fleet:current.
func (m *machine) confirm(issued time.Time) {
	m.t.Helper()
	m.Current(spec.Fleet{}, issued)
}

// boot does what the loader does: it syncs, brings the layer, leaves the record.
func (m *machine) boot() {
	m.t.Helper()
	folder, err := state.Open(m.root + paths.State)
	if err != nil {
		m.t.Fatal(err)
	}
	f := track.Tracker{Source: m.Registry.Source(), Bootstrap: *m.bootstrap(), Identity: fixtureIdentity(), Folder: folder, Say: m.t.Logf}
	found, err := f.Sync(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if err := record.SaveBoot(m.root+paths.RunBoot, &record.Boot{Mode: "netboot", Node: "superhost", RootID: "root", Disk: "/dev/vda1", Source: "fetched", Sync: "current", Generation: found.Generation, Live: record.Live{Had: "root", Began: "root"}}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) open() *Node {
	m.t.Helper()
	n, err := Open(m.t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: m.t.Logf}), m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { n.Close() }) // the test is over
	return n
}

// sync is one cycle of the service.
func (m *machine) sync() *spec.Status {
	m.t.Helper()
	n := m.open()
	defer n.Close() // the test is over
	st, err := n.cycle.Sync(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return st
}

func (m *machine) apply() *spec.Status {
	m.t.Helper()
	n := m.open()
	defer n.Close() // the test is over
	st, err := n.cycle.Apply(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return st
}

func layerNamed(name string) string { return oci.Digest([]byte(name)) }

func TestAChangeIsAppliedLive(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publish(2, layerNamed("a"), "20")
	if st := m.sync(); st.Generation != 2 || st.Sync != "current" || st.Staged != "" {
		t.Errorf("generation %d, %s, staged %q", st.Generation, st.Sync, st.Staged)
	}
	if got, _ := os.ReadFile(m.root + "/proc/sys/vm/swappiness"); strings.TrimSpace(string(got)) != "20" {
		t.Errorf("swappiness is %s", got)
	}
	m.publish(3, layerNamed("b"), "30")
	if st := m.sync(); st.Generation != 2 || st.Sync != "behind" || st.Staged == "" {
		t.Errorf("of another layer: generation %d, %s, staged %q", st.Generation, st.Sync, st.Staged)
	}
	// Values may be confidential: only root's group reads what status keeps.
	if info, err := os.Stat(m.root + paths.RunStatus); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("status: %v, %v", info, err)
	}
}

// A node that got no answer says how it is, beside why it has nothing newer.
func TestWithoutAnAnswer(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Fetch: func(spec.Bootstrap, track.Way) (oci.Source, error) { return nil, errors.New("no route") }})
	n, err := Open(t.Context(), o, m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test is over
	if st, err := n.Sync(t.Context()); err == nil || st == nil || st.Generation != 1 || st.Sync != spec.SyncUnreachable {
		t.Errorf("%+v, %v", st, err)
	}
}

// Where nothing confirms that what a node runs is the newest, it says so: somebody
// may keep newer ones from it.
func TestAnOldFleetCurrentIsSaid(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.confirm(time.Now().UTC().Truncate(time.Second).Add(-73 * time.Hour))
	if st := m.sync(); st.Sync != spec.SyncCurrent {
		t.Errorf("an older one was used: %s: %s", st.Sync, st.SyncDetail)
	}
	m.forgetFleet()
	if st := m.sync(); st.Sync != spec.SyncUnconfirmed || !strings.Contains(st.SyncDetail, "fleet:current expired at") || st.Health != spec.HealthOK {
		t.Errorf("expired: %s: %s", st.Sync, st.SyncDetail)
	}
	if err := m.Registry.Delete(t.Context(), oci.RepoFleet, "current"); err != nil {
		t.Fatal(err)
	}
	m.forgetFleet()
	if st := m.sync(); st.Sync != spec.SyncUnconfirmed || st.SyncDetail != "fleet:current is missing" {
		t.Errorf("missing: %s: %s", st.Sync, st.SyncDetail)
	}
}

// forgetFleet makes the node one that has never seen a fleet:current.
func (m *machine) forgetFleet() {
	m.t.Helper()
	folder, err := state.Open(m.root + paths.State)
	if err != nil {
		m.t.Fatal(err)
	}
	s, err := folder.Load()
	if err != nil {
		m.t.Fatal(err)
	}
	s.Fleet = state.Fleet{}
	if err := folder.Save(s); err != nil {
		m.t.Fatal(err)
	}
}

func TestPlanSaysWhatSyncWouldDo(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	plan := func() spec.Drift {
		t.Helper()
		n, err := Read(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), m.bootstrap())
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() // the test is over
		drift, err := n.Plan(t.Context())
		if err != nil || len(drift) != 1 {
			t.Fatalf("%+v, %v; want one change", drift, err)
		}
		return drift[0]
	}
	m.publish(2, layerNamed("a"), "20")
	if d := plan(); d.Item != "sysctl" || d.To != "20" || d.Action != spec.ActionChange {
		t.Errorf("live: %+v", d)
	}
	m.publish(3, layerNamed("b"), "20")
	if d := plan(); d.Action != spec.ActionDefer || d.To != "3" || d.Reason != "waits for a reboot: another layer" {
		t.Errorf("another layer: %+v", d)
	}
	n := m.open()
	if err := errors.Join(n.Freeze("", 0), n.Close()); err != nil {
		t.Fatal(err)
	}
	if d := plan(); d.Action != spec.ActionDefer || d.Reason != "this node is frozen" {
		t.Errorf("frozen: %+v", d)
	}
}

// withoutOverlay is a machine that has lost the one that it runs.
func withoutOverlay(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	if err := os.RemoveAll(m.root + paths.State + "/overlays"); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestALostOverlayIsFetchedAgain(t *testing.T) {
	m := withoutOverlay(t)
	if st := m.sync(); st.Generation != 1 || st.Health != "ok" {
		t.Errorf("generation %d, %s", st.Generation, st.Health)
	}
}

// What is lost, and no longer published, leaves nothing that this root could run: what needs
// another root waits for a boot, and who asks hears that.
func TestALostOverlayAndAnotherLayer(t *testing.T) {
	m := withoutOverlay(t)
	m.publish(2, layerNamed("b"), "20")
	n := m.open()
	if st, err := n.cycle.Sync(t.Context()); st != nil || err == nil || err.Error() != "nothing that verifies runs here, and generation 2 waits for a reboot: another layer" {
		t.Errorf("%+v, %v", st, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if got := m.rebootReason(); !strings.HasPrefix(got, "caisson: generation 2") || m.swappiness("") != "10" {
		t.Errorf("a reboot is asked for by %q, swappiness %s", got, m.swappiness(""))
	}
}

// publish --all gives nodes that did not change a new generation, too.
func TestANewGenerationOfTheSameOverlay(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publish(2, layerNamed("a"), "10")
	if st := m.sync(); st.Generation != 2 || st.Sync != "current" || st.Staged != "" {
		t.Errorf("generation %d, %s, staged %q: it waits for a reboot that nothing needs", st.Generation, st.Sync, st.Staged)
	}
}

func TestFrozenThenForward(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	n := m.open()
	if err := errors.Join(n.Freeze("", 0), n.Close()); err != nil {
		t.Fatal(err)
	}
	m.publish(2, layerNamed("a"), "20")
	if st := m.sync(); st.Generation != 1 || st.Sync != "behind" || st.Floor.Generation != 1 {
		t.Errorf("frozen: generation %d, %s, floor %d", st.Generation, st.Sync, st.Floor.Generation)
	}
	n = m.open()
	if err := errors.Join(n.Forward(""), n.Close()); err != nil {
		t.Fatal(err)
	}
	if st := m.sync(); st.Generation != 2 || st.Sync != "current" {
		t.Errorf("forward: generation %d, %s", st.Generation, st.Sync)
	}
}

// keepLayer puts a layer of one image into the node's store.
func (m *machine) keepLayer(name string) (digest, image string) {
	m.t.Helper()
	store, err := layers.OpenStore(m.root + paths.State + "/store")
	if err != nil {
		m.t.Fatal(err)
	}
	put := func(kind, text string) oci.Descriptor {
		d := oci.Describe(kind, []byte(text))
		if err := store.Put(d.Digest, d.Data); err != nil {
			m.t.Fatal(err)
		}
		return d.Bare()
	}
	blob := put("application/vnd.caisson.image.v1.squashfs", "image of "+name)
	raw := oci.Encode(oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer,
		Config: put(oci.TypeLayerConfig, "description of "+name), Layers: []oci.Descriptor{blob}})
	return put(oci.MediaTypeManifest, string(raw)).Digest, store.Path(blob.Digest)
}

func TestLayersThatNobodyNeedsGo(t *testing.T) {
	m := newMachine(t)
	var images []string
	for n, name := range []string{"first", "second", "third"} {
		layer, image := m.keepLayer(name)
		images = append(images, image)
		m.publish(uint64(n+1), layer, "10")
		m.boot()
		for _, image := range images {
			if _, err := os.Stat(image); n < 2 && err != nil {
				t.Fatalf("%s was deleted before boot %d proved good", image, n)
			}
		}
		m.apply()
	}
	for n, want := range []bool{false, true, true} {
		if _, err := os.Stat(images[n]); (err == nil) != want {
			t.Errorf("image %d: %v, want it there: %v", n, err, want)
		}
	}
}

// Where the store cannot say what the present layer needs, nothing is deleted.
func TestNothingGoesWhereThePresentIsUnclear(t *testing.T) {
	m := newMachine(t)
	layer, _ := m.keepLayer("present")
	_, other := m.keepLayer("other")
	m.publish(1, layer, "10")
	m.boot()
	if err := os.WriteFile(filepath.Join(filepath.Dir(other), strings.TrimPrefix(layer, "sha256:")), []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.apply()
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// What proves a generation ends the deadline of its boot.
func TestAProvenGenerationHasNoDeadline(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	deadline := m.root + paths.RunDeadline
	if err := os.WriteFile(deadline, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.apply()
	if _, err := os.Stat(deadline); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the node would be started over: %v", err)
	}
}

// A layer that waits for a reboot is asked for in the background, where a disk keeps
// it; what runs already is not.
func TestStage(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	n, err := Read(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test is over
	if err := n.destination.Stage(t.Context()); err != nil {
		t.Errorf("nothing waits: %v", err)
	}
	m.publish(2, layerNamed("b"), "10")
	f := track.Tracker{Source: m.Registry.Source(), Bootstrap: *m.bootstrap(), Identity: trust.Identity{Node: "superhost"}, Folder: n.session.Folder, Say: t.Logf}
	if _, err := f.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.destination.Stage(t.Context()); !errors.Is(err, oci.ErrNotFound) { // the test's layers are names only
		t.Errorf("the waiting layer was not asked for: %v", err)
	}
}

// stalls is a registry that sends nothing of one layer, and says which layers it is asked for.
type stalls struct {
	oci.Source
	layer string
	asked chan string
}

func (s stalls) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	if repo == oci.RepoLayer {
		s.asked <- reference
		if reference == s.layer {
			<-ctx.Done()
			return oci.Response{}, ctx.Err()
		}
	}
	return s.Source.Manifest(ctx, repo, reference, etag)
}

// Where another layer waits by now, it is fetched in the place of the one that nobody goes to any more.
func TestStageGoesOnWithWhatWaits(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publish(2, layerNamed("b"), "10")
	m.sync()
	from := stalls{m.Registry.Source(), layerNamed("b"), make(chan string, 9)}
	n, err := Read(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf, Fetch: func(spec.Bootstrap, track.Way) (oci.Source, error) {
		return from, nil
	}}), m.bootstrap())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close() // the test is over
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- n.Stage(ctx) }()
	if asked := <-from.asked; asked != layerNamed("b") {
		t.Errorf("asked for %s", asked)
	}
	m.publish(3, layerNamed("c"), "10")
	m.sync()
	if err := <-ended; !errors.Is(err, oci.ErrNotFound) { // the test's layers are names only
		t.Fatalf("%v", err)
	}
	if asked := <-from.asked; asked != layerNamed("c") {
		t.Errorf("asked for %s", asked)
	}
}

func fixtureIdentity() trust.Identity { return trust.Identity{Node: fixture.Node} }
