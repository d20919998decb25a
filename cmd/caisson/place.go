// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-os/caisson/internal/cli"
)

// writable refuses the name of a file that cannot be written: a verb asks before it works for
// minutes on what belongs there.
func writable(flag, name string) error {
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return cli.Usage("name a file in it", "%s: %s is a directory", flag, name)
	case err == nil && !info.Mode().IsRegular():
		return nil // a device or a pipe
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".caisson.*")
	if errors.Is(err, fs.ErrNotExist) {
		return cli.Usage("'mkdir -p "+dir+"' makes it", "%s: there is no directory %s", flag, dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
