// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

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
