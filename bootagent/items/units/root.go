// SPDX-License-Identifier: Apache-2.0

package units

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// errNoUnit says that a unit which comes with the layer is not there.
var errNoUnit = errors.New("there is no such unit")

// root is where the system is whose units are kept.
type root string

// own is the directory of the administrator's units, see systemd.unit(5); the
// others are those that packages bring.
const own = "/etc/systemd/system"

var packaged = []string{"/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// texts are the files that should stand below /etc for a unit.
func (i *Item) texts(u spec.Unit) (all []files.Want) {
	if u.Content != "" {
		all = append(all, files.Want{File: spec.File{Path: rules.UnitFile(u.Name), Content: u.Content}})
	}
	for _, d := range u.DropIns {
		all = append(all, files.Want{File: spec.File{Path: rules.UnitDropIn(u.Name, d.Name), Content: d.Content}})
	}
	if u.State == spec.UnitMasked {
		all = append(all, files.Want{File: spec.File{Path: rules.UnitFile(u.Name)}, Link: "/dev/null"})
	}
	return all
}

// installed are the links that should stand below /etc for a unit, or should not. Journaled are
// the paths that this kind has written.
func (i *Item) installed(u spec.Unit, journaled []string) (all []files.Want, err error) {
	r := i.root
	there := func(path string) bool {
		_, err := os.Lstat(filepath.Join(string(r), path))
		return err == nil
	}
	switch u.State {
	case spec.UnitEnabled:
		if file := rules.UnitFile(u.Name); r.masked(file) && !slices.Contains(journaled, file) {
			return all, errors.New("it is masked by " + file)
		}
		links, err := i.links(u.Name)
		if err == nil && len(links) == 0 {
			err = errors.New("its file does not say what would start it: it has no [Install]")
		}
		if err != nil {
			return all, err
		}
		for _, l := range links {
			if !there(l.Path) || slices.Contains(journaled, l.Path) { // else the layer enables it already
				all = append(all, l)
			}
		}
	case spec.UnitDisabled:
		links, err := i.links(u.Name)
		if err != nil && !errors.Is(err, errNoUnit) {
			return all, err
		}
		names := slices.Clone(journaled)
		for _, l := range links {
			names = append(names, l.Path)
		}
		for _, kind := range []string{"wants", "requires", "upholds"} {
			found, _ := filepath.Glob(filepath.Join(string(r), own, "*."+kind, "*")) // the pattern is ours
			for _, name := range found {
				names = append(names, strings.TrimPrefix(name, strings.TrimSuffix(string(r), "/")))
			}
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			linked := strings.Contains(path.Dir(name), own+"/") && path.Base(name) == u.Name && !strings.HasSuffix(path.Dir(name), ".d")
			alias := slices.ContainsFunc(links, func(l files.Want) bool { return l.Path == name })
			if (linked || alias) && (there(name) || slices.Contains(journaled, name)) {
				all = append(all, files.Want{File: spec.File{Path: name}, Absent: true})
			}
		}
	}
	return all, nil
}

// newest is when the last of a unit's own files was written; the zero time when that
// is to come, because the clock was set back since.
func (r root) newest(u spec.Unit) time.Time {
	var newest time.Time
	look := func(name string) {
		if info, err := os.Lstat(filepath.Join(string(r), name)); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if u.Content != "" {
		look(rules.UnitFile(u.Name))
	}
	for _, d := range u.DropIns {
		look(rules.UnitDropIn(u.Name, d.Name))
	}
	if newest.After(time.Now()) {
		return time.Time{}
	}
	return newest
}
