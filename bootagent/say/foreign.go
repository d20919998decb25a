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

// foreignLimit keeps a status readable on a node where somebody unpacked a tree.
const foreignLimit = 200

// expected are directories that a running system writes into by its nature.
var expected = []string{"/var/", "/run/", "/tmp/", "/root/.", "/home/", "/etc/.updated", "/etc/.pwd.lock", "/etc/resolv.conf", "/etc/security/limits.d/" + paths.Prefix}

// Foreign lists the files of the writable upper of a root that neither the handover, a
// kind of item, nor a system at its usual work wrote: what somebody changed by hand, and
// what will be gone after the next boot. wrote are the paths of the former two.
func Foreign(upper string, wrote []string) ([]string, error) {
	ours := map[string]bool{}
	for _, name := range wrote {
		ours[name] = true
	}
	var found []string
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
			found = append(found, name)
		}
		return nil
	})
	return found, err
}
