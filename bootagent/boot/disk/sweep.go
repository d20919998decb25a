// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// others lists the directories of users and of scripts, which may hold any kind of file.
var others = []string{"persist", "exec", "lost+found"}

// Sweep deletes from a mounted state disk what the agent never writes: links, pipes,
// sockets and devices. They were put there to be opened. What stood in their
// place is lost, and said; the node goes on without it.
func (f *Finder) Sweep(dir string) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Dir(name) == dir && slices.Contains(others, e.Name()):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir() || e.Type().IsRegular():
			return nil
		}
		f.Say("%s on the state disk is a %s and not the agent's: it is deleted", name[len(dir)+1:], kind(e.Type()))
		return os.Remove(name)
	})
}

func kind(mode fs.FileMode) string {
	switch mode {
	case fs.ModeSymlink:
		return "link"
	case fs.ModeNamedPipe:
		return "pipe"
	case fs.ModeSocket:
		return "socket"
	case 0:
		return "file"
	}
	return "device"
}
