// SPDX-License-Identifier: Apache-2.0

package units

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// Secrets are those that units name by their files, as LoadCredential= does, see
// systemd.exec(5).
type Secrets struct {
	Dir   string                   // where they are opened
	Lacks func(name string) string // why there is none of a name, "" where there is one
}

// WithSecrets leaves out units whose secrets are not there: they would fail, and the node
// can do nothing about it. Without it no unit may name any.
func (i *Item) WithSecrets(s Secrets) *Item {
	i.secrets, i.lacking = s, nil
	i.want = slices.DeleteFunc(slices.Clone(i.want), func(u spec.Unit) bool {
		for _, name := range u.SecretNames() {
			if why := s.Lacks(name); why != "" {
				i.lacking = append(i.lacking, spec.Drift{Item: Name, Key: u.Name, To: u.Run, Action: spec.ActionCannot, Reason: why})
				return true
			}
		}
		return false
	})
	return i
}

// newest is when the last of a unit's files was written, or of its secrets opened: those that
// it was started with are read no more.
func (i *Item) newest(u spec.Unit) time.Time {
	newest := i.root.newest(u)
	for _, name := range u.SecretNames() {
		if info, err := os.Lstat(filepath.Join(i.secrets.Dir, name)); err == nil && info.ModTime().After(newest) && !info.ModTime().After(time.Now()) {
			newest = info.ModTime()
		}
	}
	return newest
}
