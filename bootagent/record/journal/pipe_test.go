// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/internal/ownfiles"
)

// TestForeignJournal: neither a pipe nor a link in the journal's place is waited
// for, followed or written to.
func TestForeignJournal(t *testing.T) {
	for what, place := range map[string]func(string) error{
		"a pipe": func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a link": func(name string) error {
			return errors.Join(os.WriteFile(name+".victim", nil, 0o600), os.Symlink(name+".victim", name))
		},
		"a second name": func(name string) error {
			return errors.Join(os.WriteFile(name+".victim", nil, 0o600), os.Link(name+".victim", name))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := place(filepath.Join(dir, File)); err != nil {
				t.Fatal(err)
			}
			if j, err := Open(dir, scopes); !errors.Is(err, ownfiles.ErrShared) {
				t.Errorf("%v, %v; want ErrShared", j, err)
			}
		})
	}
}
