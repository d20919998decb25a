// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

func folder(t *testing.T) *Folder {
	t.Helper()
	f, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFirstBootFollows(t *testing.T) {
	s, err := folder(t).Load()
	if err != nil || s.Tracking != spec.Following || s.Current != nil {
		t.Fatalf("%+v, %v", s, err)
	}
}

func TestSaveLoad(t *testing.T) {
	f := folder(t)
	want := &State{Tracking: spec.Frozen, Floor: spec.Floor{Epoch: 1, Generation: 7}, Rejected: []string{"sha256:aa"}}
	want.Accept(Generation{Overlay: "sha256:02", Layer: "sha256:03", Epoch: 1, Generation: 8})
	if err := f.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestABrokenStateIsNoEmptyState(t *testing.T) {
	f := folder(t)
	for _, text := range []string{"", "{}", `{"tracking":"following"`, `{"tracking":"following","floor":{"epoch":0,"generation":0}}`,
		summed(`"tracking":"x","floor":{"epoch":0,"generation":0}}`), strings.Repeat("x", limit+1)} {
		if err := os.WriteFile(f.Path("state.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := f.Load(); err == nil {
			t.Errorf("%.40q was read as %+v: the floor is forgotten", text, s)
		}
	}
}

func TestPromote(t *testing.T) {
	g := func(n uint64, layer string) Generation {
		return Generation{Overlay: "sha256:0" + layer + string(rune('0'+n)), Layer: layer, Generation: n}
	}
	s := &State{Tracking: spec.Following}
	s.Accept(g(1, "a"))
	if s.Current != nil || s.Staged == nil {
		t.Fatal("an unproven generation is current")
	}
	s.Promote()
	s.Accept(g(2, "b"))
	s.Promote()
	if s.Current.Layer != "b" || s.Previous == nil || s.Previous.Layer != "a" || s.Staged != nil {
		t.Fatalf("after two: %+v", s)
	}
	s.Accept(g(3, "b")) // same layer: the previous layer stays known
	s.Promote()
	if s.Previous.Layer != "a" || s.Floor.Generation != 3 {
		t.Fatalf("after three: %+v", s)
	}
	s.Accept(g(3, "b"))
	if s.Staged != nil {
		t.Fatal("what runs already is staged again")
	}
}

func TestOverlays(t *testing.T) {
	f := folder(t)
	if err := f.SaveOverlay("sha256:0a", []byte("o")); err != nil {
		t.Fatal(err)
	}
	if err := f.SaveOverlay("sha256:0b", []byte("p")); err != nil {
		t.Fatal(err)
	}
	if err := f.CollectOverlays(&State{Current: &Generation{Overlay: "sha256:0a"}}); err != nil {
		t.Fatal(err)
	}
	if o, err := f.LoadOverlay("sha256:0a"); err != nil || string(o) != "o" {
		t.Errorf("%q %v", o, err)
	}
	if _, err := f.LoadOverlay("sha256:0b"); err == nil {
		t.Error("a collected overlay is there")
	}
	if _, err := f.LoadOverlay("sha256:../state"); err == nil {
		t.Error("a digest led out of the folder")
	}
}

// summed puts the checksum before fields.
func summed(fields string) string {
	return fmt.Sprintf("%s%08x\",%s", sumField, crc32.Checksum([]byte(fields), castagnoli), fields)
}

// A power cut between the two writes leaves the second copy behind: that is seen, and saving
// mends it. A first copy that is gone is damage, since it is written first.
func TestASecondCopyThatIsBehind(t *testing.T) {
	f := folder(t)
	if f.IsUneven() {
		t.Error("no state is uneven")
	}
	s := &State{Tracking: spec.Following, Floor: spec.Floor{Generation: 7}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.Save(s))
	before, err := os.ReadFile(f.Path(copies[1]))
	must(err)
	s.Floor.Generation = 8
	must(f.Save(s))
	if f.IsUneven() {
		t.Error("what was saved is uneven")
	}
	must(os.WriteFile(f.Path(copies[1]), before, 0o600))
	if !f.IsUneven() || f.Damage() != nil {
		t.Errorf("behind: uneven %v, damage %v", f.IsUneven(), f.Damage())
	}
	s, err = f.Load()
	must(err)
	must(f.Save(s))
	if f.IsUneven() || s.Floor.Generation != 8 {
		t.Errorf("saved: uneven %v, %+v", f.IsUneven(), s)
	}
	must(os.Remove(f.Path(copies[1])))
	if !f.IsUneven() || f.Damage() != nil {
		t.Errorf("one copy: uneven %v, damage %v", f.IsUneven(), f.Damage())
	}
	must(os.Rename(f.Path(copies[0]), f.Path(copies[1])))
	if f.Damage() == nil {
		t.Error("the first copy is gone and nothing says so")
	}
}

// The loader's agent may be older than the layer's, which wrote the state.
func TestAFieldOfANewerAgentIsNoDamage(t *testing.T) {
	s, err := parse([]byte(summed(`"tracking":"frozen","floor":{"epoch":1,"generation":7},"gates":["new"]}`)))
	if err != nil || s.Tracking != spec.Frozen || s.Floor.Generation != 7 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAnUnchangedStateIsNotWritten(t *testing.T) {
	f := folder(t)
	s := &State{Tracking: spec.Following}
	inode := func() uint64 {
		t.Helper()
		if err := errors.Join(f.Save(s), f.SaveOverlay("sha256:0a", []byte("o"))); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(f.Path("state.json"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	first := inode()
	if again := inode(); again != first {
		t.Error("the same state was written again")
	}
	s.Newest++
	if changed := inode(); changed == first {
		t.Error("another state was not written")
	}
}

// A directory that leads elsewhere would let the owner of the other end write what
// is restored as root.
func TestALinkIsNoFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ownfiles.ErrShared) {
		t.Errorf("%v, want ErrShared", err)
	}
	f := folder(t)
	if err := os.Symlink("/dev/zero", f.Path("state.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); !errors.Is(err, ownfiles.ErrShared) {
		t.Errorf("%v, want ErrShared", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`"tracking":"following","floor":{"epoch":0,"generation":0}}`))
	f.Add([]byte(summed(`"tracking":"frozen"}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil {
			s, err = parse([]byte(summed(string(data))))
		}
		if err != nil {
			return
		}
		text, err := encode(s)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parse(text); err != nil || !cmp.Equal(s, again, cmpopts.EquateEmpty()) {
			t.Errorf("%q was written as %q and read as %+v, %v", data, text, again, err)
		}
	})
}

// What a process left that was killed while it wrote goes with the next one, and
// nothing else does.
func TestLeftoversAreSwept(t *testing.T) {
	f := folder(t)
	left := []string{".state.json.123", ".state.copy.json.9", ".fleet-current.json.1", "overlays/.aa.json.7"}
	stays := []string{"state.json", ".keep", "overlays/aa.json"}
	for _, name := range slices.Concat(left, stays) {
		if err := os.WriteFile(f.Path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(f.Path()); err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if _, err := os.Lstat(f.Path(name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range stays {
		if _, err := os.Lstat(f.Path(name)); err != nil {
			t.Error(err)
		}
	}
}

func TestViewMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if s, err := View(dir).Load(); err != nil || s.Tracking != spec.Following {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := os.Lstat(dir); err == nil {
		t.Error("looking made a directory")
	}
}

// TestGolden: the state that 0.9.0 wrote is read, and written byte-equal; it has every key of
// the page, and the page every key of the types.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/state.json", Page: "../../../docs/formats/state.md", New: new(State),
		Write: func(v any) ([]byte, error) { return encode(v.(*State)) },
		Read:  func(data []byte) (any, error) { return parse(data) },
		Types: []reflect.Type{reflect.TypeFor[State](), reflect.TypeFor[Generation](), reflect.TypeFor[Fleet](), reflect.TypeFor[Trial](), reflect.TypeFor[Proof](), reflect.TypeFor[EarlyRuns]()},
		Later: func(file, key []byte) []byte {
			_, body, _ := bytes.Cut(file, []byte(`",`))
			body = golden.AddKey(body, key)
			return fmt.Appendf(nil, "%s%08x\",%s", sumField, crc32.Checksum(body, castagnoli), body)
		}})
}
