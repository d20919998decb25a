// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// serving is a machine with one service, at a commit of one digit.
type serving struct {
	*machine
	images map[string]spec.Blob      // by digit
	away   map[string]oci.Descriptor // those that the registry lacks
}

func newServing(t *testing.T) *serving {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mksquashfs")
	m := &serving{newMachine(t), map[string]spec.Blob{}, map[string]oci.Descriptor{}}
	if err := os.WriteFile(m.root+"/etc/passwd", []byte("root:x:0:0::/root:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.unmount)
	return m
}

// unmount ends mounts as a reboot does.
func (m *serving) unmount() {
	m.t.Helper()
	found, err := filepath.Glob(m.root + paths.RunServices + "/*/*")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, at := range found {
		_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // links are among them
	}
}

// image makes an image with one file, and pushes it unless it is to be away.
func (m *serving) image(n string, away bool) spec.Blob {
	m.t.Helper()
	if _, made := m.images[n]; !made {
		tree, out := m.t.TempDir(), filepath.Join(m.t.TempDir(), "image")
		if err := os.WriteFile(filepath.Join(tree, "conf"), []byte(n), 0o644); err != nil {
			m.t.Fatal(err)
		}
		if said, err := exec.Command("mksquashfs", tree, out, "-quiet", "-no-progress").CombinedOutput(); err != nil {
			m.t.Fatalf("%v: %s", err, said)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			m.t.Fatal(err)
		}
		d := oci.Describe(oci.TypeSquashfs, data)
		m.images[n] = spec.Blob{Digest: d.Digest, Size: d.Size}
		if away {
			m.away[n] = d
			return m.images[n]
		}
		if err := m.Registry.PutData(m.t.Context(), oci.RepoService, d); err != nil {
			m.t.Fatal(err)
		}
	}
	return m.images[n]
}

// comes pushes an image that was away.
func (m *serving) comes(n string) {
	m.t.Helper()
	if err := m.Registry.PutData(m.t.Context(), oci.RepoService, m.away[n]); err != nil {
		m.t.Fatal(err)
	}
}

func (m *serving) serve(generation uint64, n string, away bool) {
	m.t.Helper()
	o := spec.Overlay{Core: spec.Core{Layer: layerNamed("one")}, Services: []spec.Service{{Name: "x", Unit: "x.service", Commit: strings.Repeat(n, 40), Image: m.image(n, away),
		Directories: []spec.ServiceDirectory{{From: ".", To: "/srv/x"}}}}}
	o.SetNeeds()
	m.Overlay(o, sign.Predicate{Generation: generation})
	m.confirm(fixture.Now())
}

// has wants the node to have the files of a commit.
func (m *serving) has(n string) {
	m.t.Helper()
	if data, err := os.ReadFile(m.root + "/srv/x/conf"); err != nil || string(data) != n {
		m.t.Fatalf("the service is at %q, %v; want %s", data, err, n)
	}
}

func (m *serving) hold(back bool) (spec.ServiceStatus, error) {
	m.t.Helper()
	n := m.open()
	defer n.Close() // the test is over
	hold := n.FreezeService
	if back {
		hold = n.RollbackService
	}
	st, err := hold("x", "why not")
	if err == nil {
		_, err = n.cycle.Apply(m.t.Context())
	}
	return st, err
}

func (m *serving) list() spec.ServiceStatus {
	m.t.Helper()
	n, err := Read(m.t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: m.t.Logf}), m.bootstrap())
	if err != nil {
		m.t.Fatal(err)
	}
	defer n.Close() // only read
	list, err := n.Services()
	if err != nil || len(list) != 1 {
		m.t.Fatalf("%+v, %v", list, err)
	}
	return list[0]
}

// TestServiceFollowsAndIsHeld: a service follows its fleet, is frozen, goes back and
// forward on the node, and stays so over restarts and reboots.
func TestServiceFollowsAndIsHeld(t *testing.T) {
	m := newServing(t)
	m.serve(1, "1", false)
	m.boot()
	m.apply()
	m.has("1")
	m.serve(2, "2", false)
	m.sync()
	m.has("2")
	if st, err := m.hold(true); err != nil || st.Tracking != spec.Frozen || st.Commit[0] != '1' || st.Published[0] != '2' || st.Reason != "why not" || st.Since.IsZero() {
		t.Errorf("%+v, %v", st, err)
	}
	m.has("1")
	if _, err := m.hold(true); err == nil {
		t.Error("went back to before everything")
	}
	m.serve(3, "3", false)
	if st := m.sync(); st.Generation != 3 || len(st.Services) != 1 || st.Services[0].Tracking != spec.Frozen {
		t.Errorf("%+v", st)
	}
	m.has("1")
	m.unmount()
	if err := os.RemoveAll(m.root + paths.RunServices); err != nil {
		t.Fatal(err)
	}
	m.apply() // after a reboot
	m.has("1")
	n := m.open()
	if st, err := n.ForwardService("x"); err != nil || st.Tracking != spec.Following || st.Commit[0] != '3' {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := n.ForwardService("none"); err == nil {
		t.Error("there is no such service")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	m.apply()
	m.has("3")
	if _, err := m.hold(false); err != nil {
		t.Fatal(err)
	}
	m.serve(4, "4", false)
	m.sync()
	m.has("3")
	if st := m.list(); st.Tracking != spec.Frozen || st.Commit[0] != '3' || st.Published[0] != '4' {
		t.Errorf("%+v", st)
	}
}

// The places of a service are not somebody's, what stands beside them is.
func TestPlacesOfServicesAreNotForeign(t *testing.T) {
	m := newServing(t)
	m.serve(1, "1", false)
	m.boot()
	for _, name := range []string{"/srv/x", "/srv/by-hand"} { // as an overlay shows what was written
		at := m.root + paths.RunUpper + "/upper" + name
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/somewhere", at); err != nil {
			t.Fatal(err)
		}
	}
	if st := m.apply(); !slices.Equal(st.Foreign, []string{"/srv/by-hand"}) {
		t.Errorf("foreign: %q", st.Foreign)
	}
	m.has("1")
}

// TestServiceKeepsThree images, and the overlays that say what is in them.
func TestServiceKeepsThree(t *testing.T) {
	m := newServing(t)
	for i, n := range []string{"1", "2", "3", "4", "5"} {
		m.serve(uint64(i+1), n, false)
		if i == 0 {
			m.boot()
			m.apply()
		}
		m.sync()
		m.has(n)
	}
	kept := m.list().Kept
	if len(kept) != 3 || kept[0][0] != '5' || kept[1][0] != '4' || kept[2][0] != '3' {
		t.Errorf("%q", kept)
	}
	for _, want := range []string{"4", "3"} {
		if _, err := m.hold(true); err != nil {
			t.Fatal(err)
		}
		m.has(want)
	}
}

// TestServiceImageComesLater: a first fetch that fails is tried again, and a node whose
// registry lacks a newer image has what it had.
func TestServiceImageComesLater(t *testing.T) {
	m := newServing(t)
	m.serve(1, "1", true)
	m.boot()
	st := m.apply()
	if i := slices.IndexFunc(st.Drift, func(d spec.Drift) bool { return d.Item == "service" && d.Action == spec.ActionDefer }); i < 0 || !strings.Contains(st.Drift[i].Reason, "not fetched yet") {
		t.Fatalf("%+v", st.Drift)
	}
	m.comes("1")
	if st := m.sync(); len(st.Drift) > 0 {
		t.Errorf("%+v", st.Drift)
	}
	m.has("1")
	m.serve(2, "2", true)
	m.sync()
	m.has("1")
	m.comes("2")
	m.apply()
	m.has("2")
}

// TestServiceOfAStrangersDisk: what a file of the disk names and no signed overlay has
// is not what the node runs.
func TestServiceOfAStrangersDisk(t *testing.T) {
	m := newServing(t)
	m.serve(1, "1", false)
	m.boot()
	m.apply()
	evil := m.image("6", false)
	store := m.root + paths.State + "/store/sha256/"
	if err := os.MkdirAll(store, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{m.root + paths.State + "/services.json": `{"x":{"held":"` + evil.Digest + `","images":["` + evil.Digest + `"]}}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.apply()
	m.has("1")
	if err := os.WriteFile(m.root+paths.State+"/services.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.apply()
	m.has("1")
}
