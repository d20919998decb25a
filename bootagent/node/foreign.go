// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/accounts"
	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/modules"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/internal/paths"
)

// foreignLimit keeps a status readable on a node where somebody unpacked a tree.
const foreignLimit = 200

// expected are directories that a running system writes into by its nature.
var expected = []string{"/var/", "/run/", "/tmp/", "/root/.", "/home/", "/etc/.updated", "/etc/.pwd.lock", "/etc/resolv.conf", "/etc/security/limits.d/" + paths.Prefix}

// foreign lists the files of the writable upper that neither the handover, a kind of
// item, nor a system at its usual work wrote: what somebody changed by hand, and what will
// be gone after the next boot.
func (n *Node) foreign() ([]string, error) {
	upper := n.path(cmp.Or(n.boot.Upper, paths.RunUpper) + "/upper")
	var found []string
	wrote := map[string]bool{}
	for _, name := range n.boot.Wrote {
		wrote[name] = true
	}
	for _, kind := range []string{files.Name, modules.Name, units.Name, service.Name} {
		for _, e := range n.journal.Entries(kind) {
			wrote[e.Key] = true
		}
	}
	for _, e := range n.journal.Entries(accounts.Name) {
		wrote[accounts.File(e.Key)] = true
	}
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
		case d.IsDir(), wrote[name]:
		case len(found) == foreignLimit:
			return fs.SkipAll
		default:
			found = append(found, name)
		}
		return nil
	})
	return found, err
}
