// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/powercut"
	"github.com/caisson-os/caisson/test/require"
)

// judgedAct is something that an agent is at, while it judges, when it is killed.
type judgedAct struct {
	name    string
	ready   func(*machine)
	acts    string
	ends    uint64 // generation that is in effect in the end
	reboots bool   // and comes by a reboot
	rejects bool   // what was judged is not tried again
	stuck   bool   // there is nothing good, and it stays
}

var judgedActs = []judgedAct{
	{"an overlay fails", func(m *machine) { m.proves(); m.publishGated(2, layer("a"), "20", 0) }, "sync,judge", 1, false, true, false},
	{"an overlay passes", func(m *machine) { m.proves(); m.publishGated(2, layer("a"), "20", 0); m.ready("20") }, "sync,judge", 2, false, false, false},
	{"a boot of the same layer fails", func(m *machine) { m.proves(); m.publishGated(2, layer("a"), "20", 0); m.boot(); m.root2() }, "apply,judge", 1, false, true, false},
	{"a boot of another layer fails", func(m *machine) { m.proves(); m.publishGated(2, layer("b"), "20", 0); m.boot(); m.root2() }, "apply,judge", 1, true, true, false},
	{"a boot of another layer passes", func(m *machine) {
		m.proves()
		m.publishGated(2, layer("b"), "20", 0)
		m.boot()
		m.root2()
		m.ready("20")
	}, "apply,judge", 2, false, false, false},
	{"there is nothing to go back to", func(m *machine) { m.publishGated(1, layer("a"), "10", 0); m.boot() }, "apply,judge", 1, false, false, true},
	{"a newer one comes meanwhile", func(m *machine) {
		m.proves()
		m.publishGated(2, layer("a"), "20", 9)
		m.sync()
		m.publishGated(3, layer("a"), "30", 0)
		m.ready("30")
	}, "sync,judge", 3, false, false, false},
	{"what was rejected is tried again", func(m *machine) {
		m.proves()
		m.publishGated(2, layer("a"), "20", 0)
		m.sync()
		m.judge(5)
		m.ready("20")
	}, "retry,judge", 2, false, false, false},
}

// proves makes generation 1 what is current.
func (m *machine) proves() {
	m.t.Helper()
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
}

func (m *machine) judgedDoes(acts string) {
	m.t.Helper()
	for act := range strings.SplitSeq(acts, ",") {
		if act == "judge" {
			o := traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: m.t.Logf, Reboot: func(context.Context) error { return nil }})
			if _, _, err := Judge(m.t.Context(), o, nil); err != nil {
				m.t.Fatal(err)
			}
			continue
		}
		n, err := Open(m.t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: m.t.Logf}), nil)
		if err != nil {
			m.t.Fatal(err)
		}
		switch act {
		case "sync":
			_, err = n.cycle.Sync(m.t.Context())
		case "apply":
			_, err = n.cycle.Apply(m.t.Context())
		case "retry":
			_, err = n.Retry(m.t.Context())
		}
		if err := errors.Join(err, n.Close()); err != nil {
			m.t.Fatal(err)
		}
	}
}

// killJudged kills an agent after each of its calls that change a file, and looks at every so
// many of the results.
func killJudged(t *testing.T, every int) {
	if words, is := powercut.Recorded(t); is {
		(&machine{t: t, root: words[1]}).judgedDoes(words[0])
		return
	}
	points := 0
	for number, row := range judgedActs {
		t.Run(row.name, func(t *testing.T) {
			m := newMachine(t)
			if dir, err := os.MkdirTemp("/dev/shm", "caisson-"); err == nil { // where fsync(2) costs nothing
				t.Cleanup(func() { _ = os.RemoveAll(dir) }) // memory that the next start of the machine gives back
				before, err := powercut.Read(m.root)
				if err := errors.Join(err, before.Write(dir)); err != nil {
					t.Fatal(err)
				}
				m.root = dir
			}
			m.enrolled()
			row.ready(m)
			name, _, _ := strings.Cut(t.Name(), "/")
			kills := powercut.Record(t, m.root, name, row.acts, m.root).Kills()
			for n := number % every; n < len(kills); n += every {
				points++
				again := &machine{Fleet: m.Fleet, t: t, root: m.root + "-again"}
				t.Cleanup(func() { _ = os.RemoveAll(again.root) }) // as above
				if err := errors.Join(os.RemoveAll(again.root), kills[n].Tree.Write(again.root)); err != nil {
					t.Fatal(err)
				}
				if again.ends(row); t.Failed() {
					t.Fatal(kills[n])
				}
			}
			t.Logf("killed at %d places", len(kills))
		})
	}
	t.Logf("%d kills looked at", points)
	if least := 150 / every; points < least && !t.Failed() {
		t.Errorf("%d kills; want %d: it tests too little", points, least)
	}
}

// ends starts the agent again, and holds that it ends where it would have ended.
func (m *machine) ends(row judgedAct) {
	m.t.Helper()
	m.apply()
	if strings.HasPrefix(row.acts, "sync") {
		m.sync()
	}
	if strings.HasPrefix(row.acts, "retry") && m.state().Current.Generation != 2 { // who asked asks again
		m.judgedDoes("retry")
	}
	if row.stuck {
		if _, _, err := Judge(m.t.Context(), traced(session.Options{Root: m.root, Kernel: &m.kernel, Say: m.t.Logf}), nil); err != nil {
			m.t.Fatal(err)
		}
		if st := m.apply(); st.Generation != row.ends || st.Health != spec.HealthBroken || m.state().Current != nil || m.swappiness("") != "10" {
			m.t.Errorf("%+v", st)
		}
		return
	}
	_, reboots := m.judge(6)
	if (reboots > 0) != row.reboots {
		m.t.Fatalf("%d reboots", reboots)
	}
	if row.reboots { // the loader boots what is current, as its own tests have it
		if err := errors.Join(os.RemoveAll(m.root+"/run/caisson"), os.MkdirAll(m.root+paths.Run, 0o755),
			record.SaveBoot(m.root+paths.RunBoot, &record.Boot{Mode: "netboot", Node: "superhost", RootID: "root3", Disk: "/dev/vda1", Source: "cached", Sync: "behind", Generation: *m.state().Current})); err != nil {
			m.t.Fatal(err)
		}
		m.enrolled()
	}
	st := m.apply()
	if row.acts != "retry,judge" || row.rejects {
		st = m.sync()
	}
	value := strconv.Itoa(int(row.ends) * 10)
	s := m.state()
	if st.Generation != row.ends || s.Current.Generation != row.ends || m.swappiness("") != value || len(st.Checks) != 0 || (st.Rejected != nil) != row.rejects {
		m.t.Errorf("generation %d, current %d, swappiness %s, checks %+v, rejected %+v; want generation %d", st.Generation, s.Current.Generation, m.swappiness(""), st.Checks, st.Rejected, row.ends)
	}
}

// An agent that judges a change may be killed anywhere: between any two calls that change a
// file, of the state, of /run or of a parameter.
func TestKilledAtACallWhileItIsJudged(t *testing.T) {
	require.Slow(t)
	killJudged(t, 3)
}

func TestLongKilledAtEveryCallWhileItIsJudged(t *testing.T) {
	if !powercut.IsRecorded() {
		require.Long(t)
	}
	killJudged(t, 1)
}
