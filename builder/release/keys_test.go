// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
)

// files opens what a site names wherever it is, as the verbs do.
type files struct{}

func (files) Open(name string) (fs.File, error) { return os.Open(name) }

// signed returns a site that names keys/release.pub of dir, and writes that key
// and another.
func signed(t *testing.T) (s *site.Site, named, other string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"release", "other"} {
		key, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		text, err := keys.Marshal(key, nil)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file+".key", text, 0o600), os.WriteFile(file+".pub", sign.VerifierOf(key).PEM(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const text = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal-a}\n" +
		"trust: {keys: {release: [release.pub], operator: [other.pub]}}\n" +
		"layer: {base: {debian: {suite: trixie, components: [main]}}, kernel: {package: linux-image-amd64}}\n" +
		"nodes: [{name: a, match: {macs: [\"52:54:00:00:00:01\"]}}]\n"
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, found := site.Parse(files{}, filepath.Join(dir, "site.yaml"))
	if err := found.Err(); err != nil {
		t.Fatal(err, found.Problems)
	}
	return s, filepath.Join(dir, "release.key"), filepath.Join(dir, "other.key")
}

// TestKeyFiles refuses before a build what publish would refuse, and once more
// when the keys are open.
func TestKeyFiles(t *testing.T) {
	s, named, other := signed(t)
	again := filepath.Join(t.TempDir(), "copy.key") // has no public half beside it
	text, err := os.ReadFile(named)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(again, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files               KeyFiles
		warning, check, use string
	}{
		{KeyFiles{}, "are not signed", "", ""},
		{KeyFiles{Release: named, Attest: other}, "", "", ""},
		{KeyFiles{Release: named, Attest: named}, "", "the same key", "the same key"},
		{KeyFiles{Release: named, Attest: again}, "", "", "the same key"},
		{KeyFiles{Release: other}, "", "not a release key of the site", "not a release key of the site"},
		{KeyFiles{Release: again}, "", "", ""},
		{KeyFiles{Release: "/no/such.key"}, "", "no such file", "no such file"},
	} {
		warning, err := c.files.Check(s)
		if !says(err, c.check) || (warning == "") != (c.warning == "") || !strings.Contains(warning, c.warning) {
			t.Errorf("%+v: Check: %q, %v; want %q, %q", c.files, warning, err, c.warning, c.check)
		}
		release, attest, err := c.files.Open(s)
		if !says(err, c.use) {
			t.Errorf("%+v: Open: %v; want %q", c.files, err, c.use)
		}
		if err == nil && ((release == nil) != (c.files.Release == "") || (attest == nil) != (c.files.Attest == "")) {
			t.Errorf("%+v: Open returned %v, %v", c.files, release, attest)
		}
	}
}

func says(err error, want string) bool {
	if want == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), want)
}

// TestMain makes keys that cost what reading a hash does.
func TestMain(m *testing.M) {
	root.Enter()
	keys.Cost, keys.MinCost = 16, 16
	m.Run()
}

// What is current is signed again where somebody says so whose key is not stolen, or where it is
// what was seen before. Layers are, since somebody else names them.
func TestResign(t *testing.T) {
	for name, c := range map[string]struct {
		stolen, seen bool
		dry          bool
		want         error
	}{
		"the key leaves":                       {},
		"in memory":                            {dry: true},
		"the key is stolen":                    {stolen: true, want: ErrNotStated},
		"stolen, in memory":                    {stolen: true, dry: true, want: ErrNotStated},
		"stolen, and it was current before it": {stolen: true, seen: true},
	} {
		s := newShop(t)
		layer := s.build(ann, "").Layers[0].Digest
		set, err := Find(t.Context(), s.Registry, Current)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		what := Resigning{Layers: []string{layer}, Trusted: s.keys, Stated: s.keys, By: fresh, Now: s.Now, Dry: c.dry}
		if c.stolen {
			what.Stated = nil
		}
		if c.seen {
			what.Seen = set.Index
		}
		for range 2 { // again: nothing is to be done
			if err := Resign(t.Context(), s.Registry, what); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		mine := []sign.Verifier{sign.VerifierOf(fresh)}
		if err := Verify(t.Context(), s.Registry, layer, mine); (err == nil) == c.dry {
			t.Errorf("%s: the layer: %v", name, err)
		}
		if _, err := set.Statement(t.Context(), mine); (err == nil) != (c.want == nil && !c.dry) {
			t.Errorf("%s: what is current: %v", name, err)
		}
	}
}
