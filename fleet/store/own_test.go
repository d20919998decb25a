// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/test/require"
)

// TestOthersDatabase: a file that another user can read, change or put in its place is no
// database: it says whose keys count. So is what SQLite has beside it.
func TestOthersDatabase(t *testing.T) {
	require.Root(t)
	const nobody = 65534
	for what, c := range map[string]struct {
		do  func(t *testing.T, file string) error
		own bool
	}{
		"its own": {func(*testing.T, string) error { return nil }, true},
		"for others to read": {func(_ *testing.T, file string) error {
			return os.Chmod(file, 0o644)
		}, false},
		"another user's": {func(_ *testing.T, file string) error {
			return os.Chown(file, nobody, nobody)
		}, false},
		"a link of another user's": {func(t *testing.T, file string) error {
			return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file), os.Lchown(file, nobody, nobody))
		}, false},
		"a link of its own": {func(t *testing.T, file string) error {
			return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file))
		}, true},
		"a link that leads nowhere": {func(t *testing.T, file string) error {
			return errors.Join(os.Remove(file), os.Symlink(file+".none", file))
		}, false},
		"a directory": {func(t *testing.T, file string) error {
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o700))
		}, false},
		"what was not written yet is another user's": {func(t *testing.T, file string) error {
			return errors.Join(os.WriteFile(file+"-wal", nil, 0o600), os.Chown(file+"-wal", nobody, nobody))
		}, false},
		"what was not written yet, behind a link": {func(t *testing.T, file string) error {
			return errors.Join(os.Rename(file, file+".real"), os.Symlink(file+".real", file), os.WriteFile(file+".real-wal", nil, 0o600), os.Chown(file+".real-wal", nobody, nobody))
		}, false},
		"its lock is a link": {func(t *testing.T, file string) error {
			_ = os.Remove(file + ".lock") // the writer before may have left none
			return os.Symlink(filepath.Dir(file)+"/made", file+".lock")
		}, false},
	} {
		t.Run(what, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "fleet.db")
			if err := open(t, "sqlite:"+file, true).Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.do(t, file); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), "sqlite:"+file)
			if err == nil {
				err = errors.Join(s.Write(t.Context()), s.Close())
			}
			if (err == nil) != c.own {
				t.Errorf("it is opened: %v", err)
			}
			if _, err := os.Lstat(filepath.Dir(file) + "/made"); err == nil {
				t.Error("a file was made through a link")
			}
			var why *ownfiles.SecretError
			if what == "for others to read" && (!errors.As(err, &why) || why.Hint() != "chmod 600 "+file) {
				t.Errorf("nothing says what to do: %v", err)
			}
		})
	}
}
