// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/powercut"
	"github.com/caisson-os/caisson/test/require"
)

// host is an attached one: its root outlives a power cut, and what is below /proc, /run and
// /sys does not.
type host struct{ *machine }

// theirs holds the files of the host before; they are given back at the end.
var theirs = map[string]string{"motd": "theirs", "security/limits.d/60-caisson-kept.conf": "* soft core 1\n", "machine-id": "1234\n"}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{newMachine(t)}
	if dir, err := os.MkdirTemp("/dev/shm", "caisson-"); err == nil { // where fsync(2) costs nothing
		t.Cleanup(func() { _ = os.RemoveAll(dir) }) // memory that the next start of the machine gives back
		h.root = dir
	}
	if err := os.RemoveAll(h.root + "/etc"); err != nil {
		t.Fatal(err)
	}
	for name, text := range theirs {
		at := filepath.Join(h.root, "etc", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.powerOn(); err != nil {
		t.Fatal(err)
	}
	return h
}

// powerOn makes what is new with each boot, outside of what a recording looks at.
func (h *host) powerOn() error {
	boot := h.t.TempDir()
	data, err := spec.Encode(h.bootstrap())
	for _, dir := range []string{"proc", "run", "sys", "dev", "lib"} {
		err = errors.Join(err, os.RemoveAll(h.root+"/"+dir), os.MkdirAll(boot+"/"+dir, 0o755), os.Symlink(boot+"/"+dir, h.root+"/"+dir))
	}
	for name, text := range map[string]string{"/proc/sys/vm/swappiness": "60\n", "/proc/self/mountinfo": "", paths.RunBootstrap: string(data)} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(boot+name), 0o755), os.WriteFile(boot+name, []byte(text), 0o644))
	}
	return err
}

// offer publishes a generation that can be told by its files, its limits and a directory of
// its own.
func (h *host) offer(generation uint64) {
	text := fmt.Sprint(generation)
	h.Overlay(spec.Overlay{Items: spec.Items{
		Files:  []spec.File{{Path: "/etc/motd", Content: text}, {Path: "/etc/of" + text + "/deep/file", Content: text}},
		Limits: []spec.Limit{{ID: "kept", Domain: "*", Type: "soft", Item: "core", Value: text}, {ID: "of" + text, Domain: "*", Type: "soft", Item: "nproc", Value: "100"}},
		Sysctl: []spec.Sysctl{{Key: "vm/swappiness", Value: text}},
	}}, sign.Predicate{Generation: generation})
	h.Current(spec.Fleet{}, fixture.Now())
}

func (h *host) agent(act string) (st *spec.Status, err error) {
	n, err := Open(h.t.Context(), traced(session.Options{Root: h.root, Name: "superhost", Say: func(string, ...any) {}}), nil)
	if err != nil {
		return nil, err
	}
	switch act {
	case "apply":
		st, err = n.cycle.Apply(h.t.Context())
	case "sync":
		st, err = n.cycle.Sync(h.t.Context())
	case "rollback":
		st, err = n.Rollback(h.t.Context(), "a person says so", 0)
	case "restore":
		err = n.RestoreAll(h.t.Context())
	}
	return st, errors.Join(err, n.Close())
}

// in holds that the host is as one of the generations says, all of it.
func (h *host) in(may ...uint64) error {
	st, err := h.agent("apply")
	if err != nil {
		return err
	}
	if !slices.Contains(may, st.Generation) || len(st.Drift) > 0 || st.Health != spec.HealthOK {
		return fmt.Errorf("generation %d, %s, drift %+v; want one of %d", st.Generation, st.Health, st.Drift, may)
	}
	got, err := powercut.Read(h.root + "/etc")
	if err != nil {
		return err
	}
	text := fmt.Sprint(st.Generation)
	want := map[string]string{"motd": text, "of" + text + "/deep/file": text, "machine-id": "1234\n",
		"security/limits.d/60-caisson-kept.conf": "* soft core " + text + "\n", "security/limits.d/60-caisson-of" + text + ".conf": "* soft nproc 100\n"}
	for name := range got { // what a write left that was cut goes with the next write of that file
		if strings.HasPrefix(filepath.Base(name), ".motd.") || strings.HasPrefix(filepath.Base(name), ".60-caisson-") {
			delete(got, name)
		}
	}
	return exactly(got, want)
}

// given holds that the host has what it had, and nothing else.
func (h *host) given() error {
	if _, err := h.agent("restore"); err != nil {
		return err
	}
	got, err := powercut.Read(h.root + "/etc")
	if err != nil {
		return err
	}
	for name, e := range got {
		if !e.Mode.IsDir() && e.Mode != 0o640 {
			return fmt.Errorf("%s has mode %v", name, e.Mode)
		}
	}
	return exactly(got, theirs)
}

func exactly(got powercut.Tree, want map[string]string) error {
	for name, text := range want {
		if string(got[name].Data) != text {
			return fmt.Errorf("%s has %q, want %q", name, got[name].Data, text)
		}
	}
	for name, e := range got {
		if _, ok := want[name]; !ok && !e.Mode.IsDir() {
			return fmt.Errorf("%s is left over", name)
		}
		if e.Mode.IsDir() && name != "." && !slices.ContainsFunc(keys(want), func(w string) bool { return strings.HasPrefix(w, name+"/") }) {
			return fmt.Errorf("the directory %s is left over", name)
		}
	}
	return nil
}

func keys(of map[string]string) (names []string) {
	for name := range of {
		names = append(names, name)
	}
	return names
}

// cutHost cuts a host's power wherever something is written to its root, and looks at every
// so many of the results.
func cutHost(t *testing.T, every, least int) {
	require.Root(t)
	if powercut.IsRecorded() { // in another boot than that of what follows
		id := filepath.Join(t.TempDir(), "boot_id")
		err := os.WriteFile(id, []byte("00000000-0000-4000-8000-000000000000\n"), 0o444)
		if err = errors.Join(err, unix.Mount(id, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
	}
	if words, is := powercut.Recorded(t); is {
		if _, err := (&host{&machine{t: t, root: words[1]}}).agent(words[0]); err != nil {
			t.Fatal(err)
		}
		return
	}
	points, calls := 0, 0
	for number, row := range []struct {
		name  string
		ready []string
		act   string
		may   []uint64 // none: as it was
	}{
		{"the first", []string{"1"}, "sync", []uint64{1}},
		{"the second", []string{"1", "sync", "2"}, "sync", []uint64{1, 2}},
		{"a roll back", []string{"1", "sync", "2", "sync"}, "rollback", []uint64{1, 2}},
		{"giving everything back", []string{"1", "sync", "2", "sync"}, "restore", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newHost(t)
			for _, step := range row.ready {
				switch step {
				case "1", "2":
					h.offer(uint64(step[0] - '0'))
				default:
					if _, err := h.agent(step); err != nil {
						t.Fatal(err)
					}
				}
			}
			name, _, _ := strings.Cut(t.Name(), "/")
			r := powercut.Record(t, h.root, name, row.act, h.root)
			cuts := r.Cuts(1)
			calls += r.Calls()
			again := &host{&machine{Fleet: h.Fleet, t: t, root: h.root + "-again"}}
			t.Cleanup(func() { _ = os.RemoveAll(again.root) }) // as newHost
			for n := number % every; n < len(cuts); n += every {
				points++
				err := errors.Join(os.RemoveAll(again.root), cuts[n].Tree.Write(again.root), again.powerOn())
				if s, loaded := state.View(again.root + paths.State).Load(); err == nil && loaded == nil && len(row.may) > 0 && s.Current != nil {
					err = again.in(row.may...)
				}
				if err == nil && len(row.may) > 0 {
					if _, err = again.agent("sync"); err == nil {
						err = again.in(row.may...)
					}
				}
				if err == nil {
					err = again.given()
				}
				if err != nil {
					t.Fatalf("%s: %v", cuts[n], err)
				}
			}
			t.Logf("%d calls, %d results of cuts", r.Calls(), len(cuts))
		})
	}
	if t.Logf("%d calls, %d points", calls, points); points < least && !t.Failed() {
		t.Errorf("%d points; want %d: it tests too little", points, least)
	}
}

// A host that caisson did not boot is as one generation says, wherever its power went, and
// gets back what it had.
func TestAPowerCutOfAHost(t *testing.T) { cutHost(t, 5, 20) }

func TestLongEveryPowerCutOfAHost(t *testing.T) {
	if !powercut.IsRecorded() {
		require.Long(t)
	}
	cutHost(t, 1, 100)
}
