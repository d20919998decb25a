// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// fill takes all the room that a disk has left.
func fill(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // it is full
	for err == nil {
		_, err = file.Write(make([]byte, 1<<12))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// A verdict finds room on a disk that is full, and where it is full again it holds as long
// as the machine runs.
func TestAVerdictOnAFullDisk(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		require.Missing(t, "mount", fmt.Sprintf("no tmpfs here: %v", err))
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.Beside(filepath.Join(t.TempDir(), "state.json"))
	s := &State{Tracking: spec.Following, Staged: &Generation{Overlay: "a", Generation: 1}}
	if err := errors.Join(f.Reserve(), f.Save(s)); err != nil {
		t.Fatal(err)
	}
	rejected := func(when string, saved bool) {
		t.Helper()
		got, err := f.Load()
		if err != nil || got.Staged == nil || !got.Staged.Rejected() || (f.Unsaved() == nil) != saved {
			t.Fatalf("%s: %v, %+v, unsaved: %v", when, err, got, f.Unsaved())
		}
	}
	fill(t, dir)
	if s.Staged.Generation++; f.Save(s) == nil {
		t.Fatal("it is not full")
	}
	s.Staged.Failed = "it filled the disk"
	if err := f.SaveVerdict(s); err != nil {
		t.Fatal(err)
	}
	rejected("with the reserve", true)
	fill(t, dir)
	s.Staged.Failed = "and once more"
	if err := f.SaveVerdict(s); err != nil {
		t.Fatal(err)
	}
	rejected("without", false)
	if err := os.Remove(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Save(s), f.Reserve()); err != nil {
		t.Fatal(err)
	}
	rejected("with room again", true)
	if info, err := os.Stat(f.Path(reserveFile)); err != nil || info.Size() != reserve {
		t.Errorf("%v, %v", info, err)
	}
}

// What was in use is tried again at its time, also by a newer look, and not before.
func TestPostpone(t *testing.T) {
	g := Generation{Overlay: "a", Generation: 2}
	s := &State{Staged: &g}
	at := time.Unix(1000, 0)
	s.Postpone(g, "it is in use", at)
	s.Accept(Generation{Overlay: "a", Generation: 2})
	if s.Staged.Failed != "it is in use" || s.Staged.Again != 4600 || s.Staged.Attempts != 0 || s.Staged.Rejected() {
		t.Errorf("%+v", s.Staged)
	}
	if s.TryAgain(g); s.Staged.Failed != "" || s.Staged.Again != 0 {
		t.Errorf("%+v", s.Staged)
	}
	s.Reject(g, "it failed", at)
	if s.TryAgain(g); !s.Staged.Rejected() {
		t.Errorf("%+v", s.Staged)
	}
}
