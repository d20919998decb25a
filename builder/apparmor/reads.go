// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"errors"
	"io/fs"
	"path"
	"regexp"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
)

// Reads lists what [Bake] and the parser read of a layer, unless a profile
// [LeadsOut].
func Reads() []string {
	return []string{sources, "/etc/apparmor", "/usr/share/apparmor", "/usr/share/apparmor-features", parser, paths.AppArmorDir}
}

// absolute matches an include by path, see apparmor.d(5).
var absolute = regexp.MustCompile(`(?m)^\s*#?include\s+(if\s+exists\s+)?"?/`)

// LeadsOut reports whether a profile includes a file by its path, which can be
// anywhere in the layer.
func LeadsOut(profile string) bool { return absolute.MatchString(profile) }

// AnyLeadsOut reports whether a file below /etc/apparmor.d does.
func AnyLeadsOut(r *root.Root) (bool, error) { return anyLeadsOut(r, sources) }

func anyLeadsOut(r *root.Root, dir string) (bool, error) {
	names, err := r.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		at := path.Join(dir, name)
		info, err := r.Lstat(at)
		if err != nil {
			return false, err
		}
		switch {
		case info.IsDir():
			if found, err := anyLeadsOut(r, at); found || err != nil {
				return found, err
			}
		case info.Mode()&fs.ModeType == 0:
			text, err := r.ReadFile(at)
			if err != nil {
				return false, err
			}
			if LeadsOut(string(text)) {
				return true, nil
			}
		}
	}
	return false, nil
}
