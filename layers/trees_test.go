// SPDX-License-Identifier: Apache-2.0

package layers

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
)

// storedImage is a store with one blob of several blocks, and the root of its tree.
func storedImage(t *testing.T) (s *Store, name string, root verity.Hash) {
	t.Helper()
	s, err := OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 300*verity.Block/16)
	name = digest.Of(data)
	if err := s.Put(name, data); err != nil {
		t.Fatal(err)
	}
	if root, err = verity.Root(bytes.NewReader(data), int64(len(data)), verity.Hash(sha256.Sum256(data))); err != nil {
		t.Fatal(err)
	}
	return s, name, root
}

func files(t *testing.T, s *Store) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestMakeTree: the tree of a blob is made once its root is the signed one, whatever lay
// there before, and goes with the blob.
func TestMakeTree(t *testing.T) {
	s, name, root := storedImage(t)
	size := int64(300 * verity.Block)
	if s.HasTree(name, size) {
		t.Error("a tree is there before it is made")
	}
	if err := os.WriteFile(s.Tree(name), []byte("what somebody left"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s.HasTree(name, size) {
		t.Error("a tree of another size passes for one")
	}
	if err := s.MakeTree(name, root); err != nil || !s.HasTree(name, size) {
		t.Fatalf("made: %v", err)
	}
	if _, err := s.Collect(map[string]bool{name: true}); err != nil || !s.HasTree(name, size) {
		t.Errorf("the tree of a blob that is kept went: %v", err)
	}
	if _, err := s.Collect(nil); err != nil || len(files(t, s)) != 0 {
		t.Errorf("left: %v, %v", files(t, s), err)
	}
	if err := s.MakeTree(name, root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a blob: %v", err)
	}
}

// TestMakeTreeOfARottenBlob: one bit is enough; the blob stays for who may fetch it again,
// and no tree is left.
func TestMakeTreeOfARottenBlob(t *testing.T) {
	s, name, root := storedImage(t)
	flip(t, s.Path(name))
	if err := s.MakeTree(name, root); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if got := files(t, s); !slices.Equal(got, []string{digest.Hex(name)}) {
		t.Errorf("the store has %v", got)
	}
}

// TestSoundIsTakenOnce: a boot learns what was good, and the one after it does not, unless
// somebody says so again.
func TestSoundIsTakenOnce(t *testing.T) {
	s, name, _ := storedImage(t)
	if sound, err := s.TakeSound(); err != nil || len(sound) != 0 {
		t.Errorf("at first: %v, %v", sound, err)
	}
	if err := s.KeepSound([]string{name, "sha256:x"}); err != nil {
		t.Fatal(err)
	}
	if sound, err := s.TakeSound(); err != nil || !maps.Equal(sound, map[string]bool{name: true, "sha256:x": true}) {
		t.Errorf("kept: %v, %v", sound, err)
	}
	if sound, err := s.TakeSound(); err != nil || len(sound) != 0 {
		t.Errorf("taken twice: %v, %v", sound, err)
	}
	if err := os.Symlink("/etc/hostname", s.sound()); err != nil {
		t.Fatal(err)
	}
	if sound, err := s.TakeSound(); err == nil || len(sound) != 0 {
		t.Errorf("a link: %v, %v", sound, err)
	}
}
