// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// What somebody has put on the state disk must not hang the node, nor be read as its
// own: it ends with an error that says so, or with what it can verify.
func TestTamperedState(t *testing.T) {
	tried := 0
	for _, row := range attack.LoadClass[attack.StateDisk](t, "statedisk") {
		if row.Check != "node/own files" {
			continue
		}
		tried++
		t.Run(row.Name, func(t *testing.T) {
			m := newMachine(t)
			m.publish(1, layerNamed("a"), "10")
			m.boot()
			m.apply()
			for name := range row.Disks[0].Files {
				if err := os.RemoveAll(filepath.Join(m.root, paths.State, name)); err != nil {
					t.Fatal(err)
				}
			}
			row.Disks[0].Fill(t, filepath.Join(m.root, paths.State))
			var talk strings.Builder
			say := func(format string, args ...any) { fmt.Fprintf(&talk, format+"\n", args...) }
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				n, err := Open(context.Background(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: say}), m.bootstrap())
				if err == nil {
					_, err = n.cycle.Sync(context.Background())
					err = errors.Join(err, n.Close())
				}
				say("%v", err)
			}()
			select {
			case <-ended:
				if !strings.Contains(talk.String(), row.Says) {
					t.Errorf("the node says\n%s\nwant %q in it", talk.String(), row.Says)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("the node hangs")
			}
		})
	}
	if tried < 10 {
		t.Errorf("%d rows", tried)
	}
}

// TestAnUnreadableJournal: a disk that takes no writes may have a journal that cannot be
// read, because its file system could not finish what a power cut interrupted. The node
// goes on and says so; a disk with no such trouble is an error.
func TestAnUnreadableJournal(t *testing.T) {
	for _, trouble := range [][]string{nil, {"/dev/vda1 can only be read"}} {
		m := newMachine(t)
		m.publish(1, layerNamed("a"), "10")
		m.boot()
		m.apply()
		file := filepath.Join(m.root, paths.State, "journal", "journal")
		if err := errors.Join(os.RemoveAll(file), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
		boot, err := record.LoadBoot(filepath.Join(m.root, paths.RunBoot))
		if err != nil {
			t.Fatal(err)
		}
		boot.DiskTrouble = trouble
		if err := record.SaveBoot(filepath.Join(m.root, paths.RunBoot), boot); err != nil {
			t.Fatal(err)
		}
		n, err := Open(t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: t.Logf}), m.bootstrap())
		if trouble == nil {
			if err == nil {
				t.Error("a journal that cannot be read is taken for none")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		st, err := n.cycle.Apply(t.Context())
		if err := errors.Join(err, n.Close()); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(st.Drift, func(d spec.Drift) bool { return strings.Contains(d.Reason, "originals of earlier boots are not known") }) || st.Health != spec.HealthDegraded {
			t.Errorf("%+v", st)
		}
	}
}

// fullDisk puts a machine's state on a disk of its own, and returns what fills that.
func (m *machine) fullDisk() (fill func()) {
	m.t.Helper()
	require.Root(m.t)
	dir := m.root + paths.State
	if err := os.MkdirAll(dir, 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		require.Missing(m.t, "mount", fmt.Sprintf("no tmpfs here: %v", err))
	}
	m.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	return func() {
		f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			m.t.Fatal(err)
		}
		defer f.Close()                          // it is full
		for _, size := range []int{1 << 16, 1} { // to the last page
			for err = nil; err == nil; {
				_, err = f.Write(make([]byte, size))
			}
		}
	}
}

// A change that fills the state disk, and does not pass its gates, is taken back: by the
// room that is kept for that, and where that is full, too, until the machine starts over.
func TestAFullDiskKeepsNoChange(t *testing.T) {
	for name, often := range map[string]int{"with room kept": 1, "without": 2} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			fill := m.fullDisk()
			m.enrolled()
			m.publish(1, layerNamed("a"), "10")
			m.boot()
			m.apply()
			m.publishGated(2, layer("a"), "20", 0)
			if m.sync(); m.swappiness("") != "20" {
				t.Fatal("it is not in effect")
			}
			for range often {
				fill()
				if often > 1 {
					if err := os.RemoveAll(m.root + paths.State + "/reserve"); err != nil {
						t.Fatal(err)
					}
				}
			}
			st, _ := m.judge(5)
			if st == nil || st.Generation != 1 || m.swappiness("") != "10" {
				t.Fatalf("%+v, swappiness %s", st, m.swappiness(""))
			}
			if st.Health == spec.HealthOK || st.Rejected == nil || !strings.Contains(st.Rejected.Reason, "ready") {
				t.Errorf("%s, %+v", st.Health, st.Rejected)
			}
			said := slices.ContainsFunc(st.Drift, func(d spec.Drift) bool { return strings.Contains(d.Reason, "the state disk takes no writes") })
			if said != (often > 1) {
				t.Errorf("%+v", st.Drift)
			}
			again := m.sync
			if often > 1 { // what the registry has cannot be kept
				again = m.apply
			}
			if st := again(); st.Generation != 1 || m.swappiness("") != "10" {
				t.Errorf("it is tried again: %+v", st)
			}
		})
	}
}

// A boot forgets a verdict that the disk does not take: what failed stays, nothing says that
// the node goes back, and it counts as good when its checks hold after all.
func TestNoBootForAVerdictThatItForgets(t *testing.T) {
	m := newMachine(t)
	fill := m.fullDisk()
	m.enrolled()
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publishGated(2, layer("b"), "20", 0)
	m.boot()
	m.root2()
	m.apply()
	for range 2 {
		fill()
		if err := os.RemoveAll(m.root + paths.State + "/reserve"); err != nil {
			t.Fatal(err)
		}
	}
	st, reboots := m.judge(5)
	if st == nil || reboots != 0 || st.Generation != 2 || st.Health != spec.HealthBroken {
		t.Fatalf("%d reboots, %+v", reboots, st)
	}
	if err := os.Remove(m.root + paths.State + "/log"); err != nil { // there is room again
		t.Fatal(err)
	}
	m.ready("20")
	if _, reboots = m.judge(5); reboots != 0 {
		t.Errorf("%d reboots", reboots)
	}
	if s := m.state(); s.Current.Generation != 2 || s.Staged != nil {
		t.Errorf("generation %d, and %+v waits", s.Current.Generation, s.Staged)
	}
	if events, _ := m.blackBox(); slices.ContainsFunc(events, func(e spec.Event) bool { return strings.Contains(e.Did, "goes back") }) {
		t.Errorf("%+v", events)
	}
}
