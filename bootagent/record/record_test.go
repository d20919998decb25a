// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
	"github.com/caisson-os/caisson/test/require"
)

func opened(t *testing.T, dir, boot string) (*Owner, *state.Folder) {
	t.Helper()
	folder, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	folder.Alone()
	return New(folder, &Boot{RootID: "r"}, boot), folder
}

func waits(overlay string) func(*state.State) {
	return func(s *state.State) { s.Staged = &state.Generation{Overlay: overlay, Generation: 1} }
}

// What was read stays as it was, and the next process finds what is committed.
func TestASnapshotStays(t *testing.T) {
	dir, boot := t.TempDir(), filepath.Join(t.TempDir(), "boot.json")
	o, _ := opened(t, dir, boot)
	refused := func(key string) func(*Boot) {
		return func(b *Boot) {
			b.Live.Refused = append(b.Live.Refused[:0], spec.RefusedWrite{Key: key})
			if b.Live.Counts.Drift == nil {
				b.Live.Counts.Drift = map[string]uint64{}
			}
			b.Live.Counts.Drift["sysctl"]++
		}
	}
	if err := o.Commit(Change{State: waits("a"), Boot: refused("a")}); err != nil {
		t.Fatal(err)
	}
	before, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Commit(Change{State: waits("b"), Boot: refused("b")}); err != nil {
		t.Fatal(err)
	}
	if s, l := before.State, before.Boot.Live; s.Staged.Overlay != "a" || l.Refused[0].Key != "a" || l.Counts.Drift["sysctl"] != 1 {
		t.Errorf("it changed to %+v, %+v", s.Staged, l)
	}
	b, err := LoadBoot(boot)
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.View(dir).Load()
	if err != nil || s.Staged.Overlay != "b" || b.Live.Refused[0].Key != "b" || b.Live.Counts.Drift["sysctl"] != 2 {
		t.Errorf("written down: %+v, %+v, %v", s.Staged, b.Live, err)
	}
}

// Where the state cannot be saved, the record of the boot says nothing that follows from it.
func TestTheStateIsFirst(t *testing.T) {
	dir, boot := t.TempDir(), filepath.Join(t.TempDir(), "boot.json")
	o, _ := opened(t, dir, boot)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	err := o.Commit(Change{State: waits("a"), Boot: func(*Boot) { t.Error("it was changed") }})
	if _, missing := os.Stat(boot); err == nil || !errors.Is(missing, fs.ErrNotExist) {
		t.Errorf("%v, %v", err, missing)
	}
}

// A word finds room on a full disk once, a verdict holds in memory as well, and all else is not
// saved.
func TestUrgencyOnAFullDisk(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		require.Missing(t, "mount", "no tmpfs here: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	o, folder := opened(t, dir, filepath.Join(t.TempDir(), "boot.json"))
	folder.Beside(filepath.Join(t.TempDir(), "state.json"))
	if err := errors.Join(folder.Reserve(), o.Commit(Change{State: waits("a")})); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		urgent Urgency
		saved  bool
	}{{Plain, false}, {Word, true}, {Word, false}, {Verdict, true}} {
		file, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		for err == nil {
			_, err = file.Write(make([]byte, 1<<12))
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		overlay := string(rune('b' + i))
		err = o.Commit(Change{State: waits(overlay), Urgent: c.urgent})
		if now, _ := o.Read(); (err == nil) != c.saved || (now.State != nil && now.State.Staged.Overlay == overlay) != c.saved {
			t.Errorf("%d: %v, %+v", i, err, now.State)
		}
	}
	if folder.Unsaved() == nil {
		t.Error("the verdict is on the disk")
	}
}

// What is remembered is written down with the next change, and not before.
func TestRemember(t *testing.T) {
	dir, boot := t.TempDir(), filepath.Join(t.TempDir(), "boot.json")
	o, _ := opened(t, dir, boot)
	before := o.Boot()
	o.Remember(func(l *Live) { l.Stuck = "a" })
	if _, err := os.Stat(boot); !errors.Is(err, fs.ErrNotExist) || o.Boot().Live.Stuck != "a" || before.Live.Stuck != "" {
		t.Errorf("%v, %+v", err, o.Boot().Live)
	}
	if err := o.SetSync(spec.SyncBehind, "x"); err != nil {
		t.Fatal(err)
	}
	if b, err := LoadBoot(boot); err != nil || b.Live.Stuck != "a" || b.Sync != spec.SyncBehind || b.Live.SyncSince == 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// others load and save a state or the record of a boot beside this package, by why.
var others = map[string]string{
	"record/boot.go":      "it knows how",
	"record/track":        "what is accepted is kept before anybody acts on it",
	"boot/initramfs":      "the loader is alone",
	"boot/root/stack.go":  "the record is another root's",
	"node/effect/time.go": "what it remembers of the state is another goroutine's, which hangs",
	"record/record.go":    "it is this one",
}

// The parts of a running node neither load nor save what is written down.
func TestNobodyElseSaves(t *testing.T) {
	direct := regexp.MustCompile(`[fF]older\.(Load|Save|SaveVerdict)\(|\bSaveBoot\(`)
	met := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil || !direct.Match(text) {
			return err
		}
		name = strings.TrimPrefix(name, "../")
		for may := range others {
			if name == may || strings.HasPrefix(name, may+"/") {
				met[may] = true
				return nil
			}
		}
		t.Errorf("%s loads or saves a state or the record of a boot by itself: read a Snapshot, and commit a Change", name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for may := range others {
		if !met[may] {
			t.Errorf("%s does so no more: take its row out", may)
		}
	}
}

// TestGoldenBoot: the boot record that 0.9.0 wrote is read, and written byte for byte: a soft-reboot hands it to the
// agent of another layer.
func TestGoldenBoot(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/boot.json", Page: "../../docs/formats/node-files.md", New: new(Boot),
		Types: []reflect.Type{reflect.TypeFor[Boot](), reflect.TypeFor[Images](), reflect.TypeFor[Live](), reflect.TypeFor[ForBoot](), reflect.TypeFor[Protection](), reflect.TypeFor[Without](),
			reflect.TypeFor[Counts](), reflect.TypeFor[Artifact](), reflect.TypeFor[TakenBack](), reflect.TypeFor[Lease]()},
	}.InFile(t, func(name string, v any) error { return SaveBoot(name, v.(*Boot)) }, func(name string) (any, error) { return LoadBoot(name) }))
}
