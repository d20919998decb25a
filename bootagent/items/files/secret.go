// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Secrets are those that files are of. Such a file is a link below /etc, which the journal
// knows, to a copy in memory that has the owner and mode asked for, which it does not.
type Secrets struct {
	Dir   string                                               // where they are opened
	Lacks func(name string) string                             // why there is none of a name, "" where there is one, or will be
	Ask   func(ctx context.Context, path, secret string) error // what the program that reads a path says of a secret; may be nil
	Later bool                                                 // links alone are written: the memory for copies is that of the next root
}

// copies is the folder of the copies.
const copies = ".files"

// WithSecrets has files of secrets written; without it they cannot be.
func (i *Item) WithSecrets(s Secrets) *Item {
	i.secrets = s
	return i
}

// lacks says why a file cannot have its secrets.
func (i *Item) lacks(f Want) string {
	if i.name != Name { // files of another kind, which asks for itself
		return ""
	}
	return item.Lacks(f.SecretNames(), i.secrets.Lacks)
}

// copyName is the name of a path's copy in the folder.
func copyName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

// copyPath is where a path's copy is.
func (i *Item) copyPath(path string) string {
	return filepath.Join(i.secrets.Dir, copies, copyName(path))
}

// linked is the state of a path whose file is a secret.
func linked(path string) state {
	return state{Kind: link, Target: filepath.Join(spec.SecretDir, copies, copyName(path))}
}

// copied reports whether a path's copy is as it should be: s has owner and mode.
func (i *Item) copied(f Want, s state) bool {
	file := i.copyPath(f.Path)
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || uint32(info.Mode().Perm()) != s.Mode {
		return false
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != s.UID || int(st.Gid) != s.GID {
		return false
	}
	has, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	value, err := os.ReadFile(filepath.Join(i.secrets.Dir, f.Secret))
	return err == nil && bytes.Equal(has, value)
}

// copy writes a path's copy. Its owner comes before its mode: no other user reads it meanwhile.
func (i *Item) copy(f Want, s state) (err error) {
	value, err := os.ReadFile(filepath.Join(i.secrets.Dir, f.Secret))
	if err != nil {
		return fmt.Errorf("secret %q: %w", f.Secret, err)
	}
	folder := filepath.Join(i.secrets.Dir, copies)
	if err := os.Mkdir(folder, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(folder, 0o711); err != nil {
		return err
	}
	return item.Renew(i.copyPath(f.Path), value, fs.FileMode(s.Mode), s.UID, s.GID)
}

// dropCopy removes a path's copy, where it has one.
func (i *Item) dropCopy(path string) error {
	if i.secrets.Dir == "" {
		return nil
	}
	if err := os.Remove(i.copyPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
