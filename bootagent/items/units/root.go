// SPDX-License-Identifier: Apache-2.0

package units

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
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

// files are what should stand below /etc for a unit. Journaled are the paths that
// this kind has written.
func (r root) files(u spec.Unit, journaled []string) ([]files.Want, error) {
	var all []files.Want
	if u.Content != "" {
		all = append(all, files.Want{File: spec.File{Path: rules.UnitFile(u.Name), Content: u.Content}})
	}
	for _, d := range u.DropIns {
		all = append(all, files.Want{File: spec.File{Path: rules.UnitDropIn(u.Name, d.Name), Content: d.Content}})
	}
	there := func(path string) bool {
		_, err := os.Lstat(filepath.Join(string(r), path))
		return err == nil
	}
	switch u.State {
	case spec.UnitMasked:
		all = append(all, files.Want{File: spec.File{Path: rules.UnitFile(u.Name)}, Link: "/dev/null"})
	case spec.UnitEnabled:
		links, err := r.links(u.Name, u.Content, map[string]bool{})
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
		links, err := r.links(u.Name, u.Content, map[string]bool{})
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

// links are those that enable a unit: what its [Install] section asks for, and that
// of the units which come along.
func (r root) links(name, content string, seen map[string]bool) ([]files.Want, error) {
	if seen[name] {
		return nil, nil
	}
	seen[name] = true
	file := rules.UnitFile(name)
	if content == "" {
		var err error
		if file, content, err = r.find(name); err != nil {
			return nil, err
		}
	}
	var all []files.Want
	add := func(at string) error {
		if err := cmp.Or(rules.Unit(path.Base(at)), rules.Reserved(at)); err != nil {
			return fmt.Errorf("its [Install] section: %w", err)
		}
		all = append(all, files.Want{File: spec.File{Path: at}, Link: file})
		return nil
	}
	install := rules.UnitSection(content, "Install")
	for key, suffix := range map[string]string{"WantedBy": "wants", "RequiredBy": "requires", "UpheldBy": "upholds"} {
		for _, by := range install[key] {
			if err := cmp.Or(rules.Unit(by), add(own+"/"+by+"."+suffix+"/"+name)); err != nil {
				return nil, err
			}
		}
	}
	for _, alias := range install["Alias"] {
		if err := add(own + "/" + alias); err != nil {
			return nil, err
		}
	}
	for _, other := range install["Also"] {
		more, err := r.links(other, "", seen)
		if err != nil && !errors.Is(err, errNoUnit) {
			return nil, err
		}
		all = append(all, more...)
	}
	slices.SortFunc(all, func(a, b files.Want) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// find returns the file of a unit and what it holds; that of an instance is its
// template's.
func (r root) find(name string) (file, content string, err error) {
	names := []string{name}
	if prefix, instance, ok := strings.Cut(name, "@"); ok {
		names = append(names, prefix+"@"+path.Ext(instance))
	}
	for _, name := range names {
		for _, dir := range append([]string{own}, packaged...) {
			at := filepath.Join(string(r), dir, name)
			if to, err := os.Readlink(at); err == nil && to == "/dev/null" {
				continue // masked, perhaps by this item
			}
			text, err := os.ReadFile(at)
			if err == nil {
				return dir + "/" + name, string(text), nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", "", err
			}
		}
	}
	return "", "", errNoUnit
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
