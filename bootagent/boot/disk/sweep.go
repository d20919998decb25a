// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// others is what belongs to users and to scripts, who may have what they like in it.
var others = []string{"persist", "exec", "lost+found"}

// Sweep deletes from a mounted state disk what the agent never writes: links, pipes,
// sockets and devices. Whoever put them there wants them opened. What stood in their
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
