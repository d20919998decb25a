// SPDX-License-Identifier: Apache-2.0

package root

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// A package may put a link in the place of a directory. The builder writes and
// removes as the host's root, so it must not follow one out of the tree.
func TestLinksOutOfTheTree(t *testing.T) {
	require.Root(t)
	for name, act := range map[string]func(r *Root) error{
		"write":           func(r *Root) error { return r.WriteFile("/etc/ssh/kept/new", nil, 0o644) },
		"overwrite":       func(r *Root) error { return r.WriteFile("/etc/ssh/kept/file", []byte("x"), 0o644) },
		"write as a link": func(r *Root) error { return r.WriteFile("/linked", []byte("x"), 0o644) },
		"make":            func(r *Root) error { return r.MkdirAll("/etc/ssh/new", 0o755) },
		"make deep":       func(r *Root) error { return r.MkdirAll("/etc/ssh/kept/new", 0o755) },
		"link":            func(r *Root) error { return r.Symlink("x", "/etc/ssh/kept/link") },
		"owner":           func(r *Root) error { return r.Lchown("/etc/ssh/kept/file", 7, 7) },
		"mode":            func(r *Root) error { return r.Chmod("/linked", 0o777) },
		"remove": func(r *Root) error {
			return RemoveGlob(r.Upper, []string{"etc/ssh/*", "etc/ssh/kept", "etc/ssh/kept/*"})
		},
		"remove in a relative link": func(r *Root) error { return RemoveGlob(r.Upper, []string{"up/*/kept/*"}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := &Root{Upper: filepath.Join(t.TempDir(), "tree"), Work: t.TempDir()}
			outside := t.TempDir()
			write(t, outside, map[string]string{"kept/file": "host"})
			write(t, r.Upper, map[string]string{"etc/ssh": "→" + outside, "linked": "→" + filepath.Join(outside, "kept/file"), "up": "→../" + filepath.Base(outside)})
			err := act(r)
			t.Log(err)
			var left []string
			if err := filepath.WalkDir(outside, func(name string, _ os.DirEntry, err error) error {
				left = append(left, name)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(outside, "kept/file"))
			info, statErr := os.Stat(filepath.Join(outside, "kept/file"))
			if len(left) != 3 || err != nil || string(data) != "host" || statErr != nil || info.Mode() != 0o644 {
				t.Errorf("the host has now %q, %q, %v, %v", left, data, err, info)
			}
		})
	}
}
