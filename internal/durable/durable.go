// SPDX-License-Identifier: Apache-2.0

// Package durable writes files that survive a power cut: after a call returns,
// either the old content or the new one is on disk, never a part of either.
//
// Every write that matters goes through it: temporary file in the same directory,
// fsync, rename, fsync of the directory, see rename(2) and fsync(2). It does
// not know what it writes. Anyone may import it.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces name with data, or leaves name as it was.
func WriteFile(name string, data []byte, perm os.FileMode) error {
	return Write(name, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write replaces name with what fill writes. When fill fails, name is left as
// it was and its error is returned as it is.
func Write(name string, perm os.FileMode, fill func(io.Writer) error) error {
	return Fill(name, perm, func(f *os.File) error { return fill(f) })
}

// Fill is [Write] for what is not written from its beginning to its end. A device, a pipe or a
// socket is never replaced: root that writes to /dev/null would have a file in its place.
func Fill(name string, perm os.FileMode, fill func(*os.File) error) (err error) {
	if info, err := os.Lstat(name); err == nil && info.Mode()&(os.ModeDevice|os.ModeNamedPipe|os.ModeSocket) != 0 {
		return fmt.Errorf("write %s: it is not a file that could be replaced", name)
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()           // err says what failed
			_ = os.Remove(f.Name()) // err says what failed; the next write has another name
		}
	}()
	if err := fill(f); err != nil {
		return err
	}
	if err := f.Chmod(perm); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return Rename(f.Name(), name)
}

// Rename moves from to to and makes the move durable. Both are in one file system.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// Remove deletes name durably. A missing file is not an error.
func Remove(name string) error {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// MkdirAll makes dir, and what is missing above it, durably: what is written into a
// directory whose own name is lost is lost, too.
func MkdirAll(dir string, perm os.FileMode) error {
	var above []string // of what is missing
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !os.IsNotExist(err) {
			break
		}
		above = append(above, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, perm); err != nil {
		return err
	}
	for _, at := range above {
		if err := SyncDir(at); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // a directory has nothing left to write
	if err := d.Sync(); err != nil {
		return fmt.Errorf("fsync folder %s: %w", dir, err)
	}
	return nil
}

// File is a file that is to be made.
type File struct {
	Name string // below a directory
	Data []byte
	Mode os.FileMode
}

// Make makes all of the files below dir, in their order, or none, and returns their names. It
// overwrites nothing, and closes to others the directory of a file that is.
func Make(dir string, files []File) (made []string, err error) {
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = fs.ErrExist
			}
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
	}
	defer func() {
		if err != nil {
			for _, name := range made {
				_ = os.Remove(filepath.Join(dir, name)) // err says what failed
			}
			made = nil
		}
	}()
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return made, err
		}
		if f.Mode&0o077 == 0 {
			if err := os.Chmod(filepath.Dir(name), 0o700); err != nil {
				return made, err
			}
		}
		if err := WriteFile(name, f.Data, f.Mode); err != nil {
			return made, fmt.Errorf("write %s: %w", f.Name, err)
		}
		made = append(made, f.Name)
	}
	return made, nil
}
