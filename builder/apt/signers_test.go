// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// signer is who signs archives, by several keys in one keyring.
type signer struct {
	t    *testing.T
	home string
	keys []string // fingerprints
}

func newSigner(t *testing.T, keys int) *signer {
	t.Helper()
	require.Tool(t, "gpg", "gpgconf")
	home, err := os.MkdirTemp("", "gpg") // its socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{t: t, home: home}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // it ends without its directory, too
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	for range keys {
		said := s.gpg("--passphrase", "", "--status-fd", "1", "--quick-gen-key", "--yes", "test@example.org", "ed25519", "sign")
		_, key, _ := strings.Cut(said, "KEY_CREATED P ")
		s.keys = append(s.keys, strings.TrimSpace(key))
	}
	s.gpg("--output", s.keyring(), "--export")
	return s
}

func (s *signer) keyring() string { return filepath.Join(s.home, "archive.gpg") }

func (s *signer) gpg(args ...string) string {
	s.t.Helper()
	said, err := exec.Command("gpg", append([]string{"--homedir", s.home, "--batch", "--yes", "--quiet"}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("gpg: %v\n%s", err, said)
	}
	return string(said)
}

// sign has keys sign the index of a, within it or beside it.
func (s *signer) sign(a *archive, beside bool, keys ...int) {
	s.t.Helper()
	args, name := []string{"--clearsign"}, "InRelease"
	if beside {
		args, name = []string{"--detach-sign", "--armor"}, "Release.gpg"
	}
	for _, gone := range []string{"InRelease", "Release.gpg"} {
		_ = os.Remove(filepath.Join(a.dir, gone)) // it may not be there
	}
	for _, n := range keys {
		args = append(args, "--local-user", s.keys[n])
	}
	s.gpg(append([]string{"--output", filepath.Join(a.dir, name)}, append(args, filepath.Join(a.dir, "Release"))...)...)
}

// state opens a new apt on archives, each by its name, that this keyring verifies.
func (s *signer) state(archives map[string]*archive) *State {
	s.t.Helper()
	var list []Archive
	for id, a := range archives {
		list = append(list, Archive{ID: id, URI: "copy:" + a.dir, Suites: []string{"./"}, Keyring: s.keyring()})
	}
	st, err := Open(s.t.Context(), s.t.TempDir()+"/a 50%3a", "amd64", list)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// TestSigners: which keys signed an index is what apt's own program says of it now.
func TestSigners(t *testing.T) {
	a, by := newArchive(t), newSigner(t, 2)
	a.add("lib", "1")
	for _, beside := range []bool{false, true} {
		for _, keys := range [][]int{{0}, {1}, {0, 1}} {
			by.sign(a, beside, keys...)
			st := by.state(map[string]*archive{"own": a})
			if err := st.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, n := range keys {
				want = append(want, by.keys[n])
			}
			slices.Sort(want)
			got, err := st.Signers(t.Context())
			if err != nil || !slices.Equal(got.Of("own"), want) || len(got) != 1 {
				t.Errorf("beside %v, keys %v: %v, %v, want %v", beside, keys, got, err, want)
			}
			// The key is taken out of the keyring: what apt verified before does not count.
			if err := os.WriteFile(by.keyring(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := st.Signers(t.Context()); err == nil {
				t.Errorf("without the key: %v", got)
			}
			by.gpg("--output", by.keyring(), "--export")
		}
	}
}

// TestOtherKey: what a lock names is taken from the archive that it names alone, signed by a key
// that it names, no matter who else signs archives of the site or has put the file into the cache.
func TestOtherKey(t *testing.T) {
	a, b, by := newArchive(t), newArchive(t), newSigner(t, 2)
	a.add("lib", "1")
	b.add("his", "1")
	by.sign(a, false, 0)
	by.sign(b, false, 1)
	both := map[string]*archive{"a": a, "b": b}
	st := by.state(both)
	if err := st.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	debs, err := st.Resolve(t.Context(), Request{Install: []string{"lib", "his"}})
	if err != nil || len(debs) != 2 {
		t.Fatal(debs, err)
	}
	lib, his := debs[slices.IndexFunc(debs, func(d Deb) bool { return d.Archive == "a" })], debs[slices.IndexFunc(debs, func(d Deb) bool { return d.Archive == "b" })]
	keys, err := st.Signers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(dir string, locked bool, keys Signers, unsigned string, d Deb) error {
		x := &Store{Dir: dir, Kept: []string{b.dir}, Signed: locked, Keys: keys, Unsigned: []string{unsigned}}
		return x.Fetch(t.Context(), by.state(both), []Deb{d}, func(Fetched) {})
	}
	for _, d := range debs {
		if err := fetch(t.TempDir(), true, keys, "", d); err != nil {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
	forged := his
	forged.Archive = "a" // whose owner never had it
	var not *NotSigned
	if err := fetch(t.TempDir(), true, keys, "", forged); !errors.As(err, &not) {
		t.Errorf("a package of another archive of the site: %v", err)
	}
	// It is in the cache by then, of a build without a lock, of another lock, or without a question.
	for what, put := range map[string]func(dir string) error{
		"of no lock":         func(dir string) error { return fetch(dir, false, keys, "", his) },
		"of another lock":    func(dir string) error { return fetch(dir, true, keys, "", his) },
		"without a question": func(dir string) error { return fetch(dir, true, keys, his.Name, forged) },
	} {
		dir := t.TempDir()
		if err := put(dir); err != nil {
			t.Fatal(what, err)
		}
		if err := fetch(dir, true, keys, "", forged); !errors.As(err, &not) {
			t.Errorf("it is in the cache %s: %v", what, err)
		}
	}

	old := t.TempDir()
	if err := fetch(old, true, nil, "", lib); err != nil {
		t.Errorf("a lock of before: %v", err)
	}
	by.sign(a, false, 1)
	var other *OtherKey
	if err := fetch(t.TempDir(), true, keys, "", lib); !errors.As(err, &other) || !strings.Contains(err.Error(), by.keys[1]) || other.Was[0] != by.keys[0] {
		t.Errorf("another key of the keyring signs the archive: %v", err)
	}
	if err := fetch(t.TempDir(), true, keys, lib.Name, lib); !errors.As(err, new(*Gone)) && err != nil {
		t.Errorf("named as unsigned: %v", err)
	}
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	for what, keys := range map[string]Signers{"its key": keys, "a lock of before": nil} {
		if err := fetch(old, true, keys, "", lib); err != nil {
			t.Errorf("it is in the cache, signed by %s, and nobody answers: %v", what, err)
		}
	}
	if err := fetch(old, true, Signers{{Archive: "a", Keys: keys.Of("b")}}, "", lib); err == nil {
		t.Error("it is in the cache, signed by another key than the lock's, and nobody answers: taken")
	}
}
