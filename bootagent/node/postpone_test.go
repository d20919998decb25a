// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/paths"
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
	s.Postpone(*s.Staged, "unmount /data: device or resource busy", time.Now(), time.Now().Add(time.Hour))
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
