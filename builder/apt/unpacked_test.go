// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// A package without its compression has the same content and is made once, unless
// it is damaged.
func TestUnpacked(t *testing.T) {
	require.Root(t)
	a := newArchive(t)
	a.add("lib", "2:1.0~rc1")
	s := a.updated()
	debs, err := s.Resolve(t.Context(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	store := &Store{Dir: t.TempDir()}
	if err := store.Fetch(t.Context(), s, debs, func(Fetched) {}); err != nil {
		t.Fatal(err)
	}
	plain, err := store.Unpacked(t.Context(), debs, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(plain) != 1 || plain[0].SHA256 == debs[0].SHA256 || plain[0].Name != "lib" || plain[0].Version != debs[0].Version {
		t.Fatalf("made %+v of %+v", plain, debs)
	}
	for _, part := range []string{"--ctrl-tarfile", "--fsys-tarfile", "--field"} {
		tar := func(d Deb) []byte {
			out, err := exec.Command("dpkg-deb", part, store.Path(d)).Output()
			if err != nil {
				t.Fatal(part, err)
			}
			return out
		}
		if before, after := tar(debs[0]), tar(plain[0]); !bytes.Equal(before, after) || len(after) == 0 {
			t.Errorf("%s has %d bytes, had %d", part, len(after), len(before))
		}
	}
	if members, err := exec.Command("ar", "t", store.Path(plain[0])).Output(); err == nil && string(members) != "debian-binary\ncontrol.tar\ndata.tar\n" {
		t.Errorf("ar lists %q", members)
	}
	if err := store.Repo(t.TempDir(), "test", plain); err != nil {
		t.Error(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	if again, err := store.Unpacked(t.Context(), debs, none); err != nil || !slices.Equal(again, plain) {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if err := os.Truncate(store.Path(plain[0]), 100); err != nil {
		t.Fatal(err)
	}
	if again, err := store.Unpacked(t.Context(), debs, t.TempDir()); err != nil || !slices.Equal(again, plain) || !store.holds(again[0]) {
		t.Errorf("after damage: %+v, %v", again, err)
	}
}
