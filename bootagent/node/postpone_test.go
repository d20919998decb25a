// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// postpones has the machine, whose loader has accepted a generation, have found something in
// use that it takes away, and then enter it by a boot.
func (m *machine) postpones() {
	m.t.Helper()
	folder, err := state.Open(m.root + paths.State)
	if err != nil {
		m.t.Fatal(err)
	}
	s := m.state()
	s.Postpone(*s.Staged, "unmount /data: device or resource busy", time.Now())
	s.Staged.Attempts = 1
	if err := folder.Save(s); err != nil {
		m.t.Fatal(err)
	}
	m.root2()
}

// What was in use is not once the machine is started over: what was left for it then proves
// itself as anything does.
func TestAPostponedGenerationProvesItselfAfterABoot(t *testing.T) {
	m := runningMachine(t)
	m.publish(2, layerNamed("a"), "20")
	m.boot()
	m.postpones()
	m.apply()
	if s := m.state(); s.Current.Generation != 2 || s.Staged != nil {
		t.Errorf("generation %d, and %+v waits", s.Current.Generation, s.Staged)
	}
	if st := m.sync(); st.Rejected != nil || st.Generation != 2 {
		t.Errorf("%+v", st)
	}
}

func TestAPostponedGenerationIsJudgedAfterABoot(t *testing.T) {
	m := runningMachine(t)
	m.publishGated(2, layer("a"), "20", 0)
	m.boot()
	m.postpones()
	m.apply()
	if m.judge(5); m.swappiness("") != "10" {
		t.Errorf("its check fails, and it stays: swappiness %s", m.swappiness(""))
	}
	if s := m.state().Staged; s == nil || !s.Rejected() {
		t.Errorf("%+v", s)
	}
}

// What is in use cannot be unmounted. The change that takes it away is taken back, and tried
// again later: it is not the change's fault.
func TestAMountThatIsInUse(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	table, at := m.root+"/proc/self/mountinfo", m.root+"/data"
	if err := errors.Join(os.Remove(table), os.Symlink("/proc/self/mountinfo", table)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // the mount is this test's alone, if it is there
	m.publishItems(1, layerNamed("a"), spec.Items{Mounts: []spec.Mount{{ID: "data", Device: "tmpfs", Type: "tmpfs", Target: at}}})
	m.boot()
	m.apply()
	used, err := os.Create(at + "/used")
	if err != nil {
		t.Fatal(err)
	}
	m.publishItems(2, layerNamed("a"), spec.Items{})
	n := m.open()
	st, err := n.cycle.Sync(t.Context())
	if !errors.Is(err, unix.EBUSY) || st == nil || st.Generation != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	if err := errors.Join(n.Close(), used.Close()); err != nil {
		t.Fatal(err)
	}
	if s := m.state(); s.Staged == nil || s.Staged.Again == 0 || s.Current.Generation != 1 {
		t.Errorf("%+v", s)
	}
	if st, err := m.say(func(n *Node) (*spec.Status, error) { return n.Retry(t.Context()) }); err != nil || st.Generation != 2 {
		t.Errorf("once nobody uses it: %+v, %v", st, err)
	}
}
