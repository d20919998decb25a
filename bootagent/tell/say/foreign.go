// SPDX-License-Identifier: Apache-2.0

package say

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/paths"
)

// A status stays readable where somebody unpacked a tree, and where a program keeps its own files
// below /etc, as libvirt and lvm do.
const (
	foreignLimit  = 200 // names in all
	foreignFolder = 5   // files of a directory that are named; with more of them, it is
)

// expected are directories that a running system writes into by its nature.
var expected = []string{"/var/", "/run/", "/tmp/", "/root/.", "/home/", "/etc/.updated", "/etc/.pwd.lock", "/etc/resolv.conf", "/etc/security/limits.d/" + paths.Prefix}

// Foreign lists the files of the writable upper of a root that neither the handover, a
// kind of item, nor a system at its usual work wrote: what somebody changed by hand, and
// what will be gone after the next boot. A name that ends with a slash is a directory with
// many such files in it. wrote are the paths of the former two.
func Foreign(upper string, wrote []string) ([]string, error) {
	ours := map[string]bool{}
	for _, name := range wrote {
		ours[name] = true
	}
	var found []string
	in := map[string]int{} // files, by directory
	err := filepath.WalkDir(upper, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, upper)
		switch {
		case name == "":
		case slices.ContainsFunc(expected, func(e string) bool { return strings.HasPrefix(name+"/", e) }):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir(), ours[name]:
		case len(found) == foreignLimit:
			return fs.SkipAll
		default:
			dir, _ := filepath.Split(name)
			if in[dir]++; in[dir] <= foreignFolder {
				found = append(found, name)
			} else if in[dir] == foreignFolder+1 {
				found = slices.DeleteFunc(found, func(file string) bool { d, _ := filepath.Split(file); return d == dir })
				found = append(found, dir)
			}
		}
		return nil
	})
	slices.Sort(found)
	return found, err
}
