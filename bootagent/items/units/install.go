// SPDX-License-Identifier: Apache-2.0

package units

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/files"
	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// install is the [Install] section of a unit with its drop-ins, and its file.
type install struct {
	file string
	says map[string][]string
}

// links are those that 'systemctl enable' makes: what the [Install] section asks for, and that
// of the units which come along.
func (i *Item) links(name string) ([]files.Want, error) {
	all := map[string]files.Want{}
	if err := i.link(name, all, map[string]bool{}); err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(all), func(a, b files.Want) int { return strings.Compare(a.Path, b.Path) }), nil
}

func (i *Item) link(name string, all map[string]files.Want, seen map[string]bool) error {
	if seen[name] {
		return nil
	}
	seen[name] = true
	in, err := i.install(name)
	if err != nil {
		return err
	}
	as := name // of a template: its default instance
	if prefix, suffix, ok := strings.Cut(name, "@."); ok && len(in.says["DefaultInstance"]) > 0 {
		as = prefix + "@" + in.says["DefaultInstance"][0] + "." + suffix
	}
	add := func(at string) error {
		if err := cmp.Or(rules.Unit(path.Base(at)), rules.Reserved(at)); err != nil {
			return fmt.Errorf("its [Install] section: %w", err)
		}
		all[at] = files.Want{File: spec.File{Path: at}, Link: in.file}
		return nil
	}
	for key, suffix := range map[string]string{"WantedBy": "wants", "RequiredBy": "requires", "UpheldBy": "upholds"} {
		targets, err := in.words(key, as)
		if err != nil {
			return err
		}
		for _, by := range targets {
			if strings.Contains(as, "@.") && !strings.Contains(by, "@") {
				return fmt.Errorf("its [Install] section: %s is a template without an instance, which %s cannot start", as, by)
			}
			if err := add(own + "/" + by + "." + suffix + "/" + as); err != nil {
				return err
			}
		}
	}
	aliases, err := in.aliases(name, as)
	if err != nil {
		return err
	}
	for _, alias := range aliases {
		if i.file(alias) == "" && alias != name { // else another unit is called so
			if err := add(own + "/" + alias); err != nil {
				return err
			}
		}
	}
	others, err := in.words("Also", as)
	if err != nil {
		return err
	}
	for _, other := range others {
		if err := i.link(other, all, seen); err != nil && !errors.Is(err, errNoUnit) {
			return err
		}
	}
	return nil
}

// words returns the units that a key of the section names, its specifiers those of a unit.
func (in *install) words(key, of string) (out []string, err error) {
	for _, word := range in.says[key] {
		word, err := rules.UnitSpecifiers(of, word)
		if err = cmp.Or(err, rules.Unit(word)); err != nil {
			return nil, fmt.Errorf("its [Install] section: %w", err)
		}
		out = append(out, word)
	}
	return out, nil
}

// aliases returns the other names of a unit, those of its instance where it is one.
func (in *install) aliases(name, of string) ([]string, error) {
	list, err := in.words("Alias", of)
	if err != nil {
		return nil, err
	}
	_, instance, _ := strings.Cut(strings.TrimSuffix(name, path.Ext(name)), "@")
	for n, alias := range list {
		if prefix, suffix, ok := strings.Cut(alias, "@."); ok && instance != "" {
			alias = prefix + "@" + instance + "." + suffix
		}
		if path.Ext(alias) != path.Ext(name) || strings.Contains(alias, "@") != strings.Contains(name, "@") {
			return nil, fmt.Errorf("its [Install] section: %s cannot be an alias of %s", alias, name)
		}
		list[n] = alias
	}
	return list, nil
}

// file says what of the wanted units makes the file of a name: its text, or "/dev/null".
func (i *Item) file(name string) string {
	for _, u := range i.want {
		if u.Name == name && (u.Content != "" || u.State == spec.UnitMasked) {
			return cmp.Or(u.Content, "/dev/null")
		}
	}
	return ""
}

// install reads the section of a unit as it will be when all that is wanted is written.
func (i *Item) install(name string) (in install, err error) {
	names := []string{name}
	if prefix, instance, ok := strings.Cut(name, "@"); ok && !strings.HasPrefix(instance, ".") {
		names = append(names, prefix+"@"+path.Ext(instance))
	}
	text := ""
	if in.file, text, err = i.find(names); err != nil {
		return in, err
	}
	dropIns := map[string]string{}
	for _, name := range slices.Backward(names) {
		for _, dir := range slices.Backward(append([]string{own}, packaged...)) {
			found, _ := filepath.Glob(filepath.Join(string(i.root), dir, name+".d", "*.conf")) // the pattern is ours
			for _, file := range found {
				content, err := os.ReadFile(file)
				if err != nil {
					return in, err
				}
				dropIns[filepath.Base(file)] = string(content)
			}
		}
		for _, u := range i.want {
			for _, d := range u.DropIns {
				if u.Name == name {
					dropIns[d.Name+".conf"] = d.Content
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropIns)) {
		text += "\n" + dropIns[name]
	}
	in.says = rules.UnitSection(text, "Install")
	return in, nil
}

// find returns the file that a unit has, by the first of its names: an instance has its
// template's.
func (i *Item) find(names []string) (file, content string, err error) {
	for _, name := range names {
		if text := i.file(name); text != "" && text != "/dev/null" {
			return rules.UnitFile(name), text, nil
		}
		for _, dir := range append([]string{own}, packaged...) {
			at := dir + "/" + name
			if i.root.masked(at) {
				continue // perhaps by this item
			}
			text, err := os.ReadFile(filepath.Join(string(i.root), at))
			if err == nil {
				return at, string(text), nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", "", err
			}
		}
	}
	return "", "", errNoUnit
}

// masked reports whether a file of a unit is a mask.
func (r root) masked(file string) bool {
	to, err := os.Readlink(filepath.Join(string(r), file))
	return err == nil && to == "/dev/null"
}

// outdated names the services that still have the limits of before: limits of processes
// are those that they were started with. When each is restarted is its owner's business.
func (i *Item) outdated(ctx context.Context, u spec.Unit) (d spec.Drift, err error) {
	written := i.root.newest(u)
	if i.systemd == nil || written.IsZero() {
		return d, nil
	}
	var limits []string
	for _, in := range u.DropIns {
		for line := range strings.Lines(in.Content) {
			if name, _, ok := strings.Cut(line, "="); ok {
				limits = append(limits, strings.TrimPrefix(name, "DefaultLimit"))
			}
		}
	}
	old, err := i.systemd.Outdated(ctx, limits, written)
	if err != nil || len(old) == 0 {
		return d, err
	}
	return spec.Drift{Item: Name, Key: u.Name, From: "with the limits of before: " + strings.Join(old, " "),
		To: "restarted", Action: spec.ActionReport}, nil
}

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
		why := item.Lacks(u.SecretNames(), s.Lacks)
		if why != "" {
			i.lacking = append(i.lacking, spec.Drift{Item: Name, Key: u.Name, To: u.Run, Action: spec.ActionCannot, Reason: why})
		}
		return why != ""
	})
	return i
}

// newest is when the last of a unit's files was written, or of its secrets opened: those that
// it was started with are read no more.
func (i *Item) newest(u spec.Unit) time.Time {
	newest := i.root.newest(u)
	for _, name := range u.SecretNames() {
		if info, err := os.Lstat(filepath.Join(i.secrets.Dir, name)); err == nil && info.ModTime().After(newest) &&
			!info.ModTime().After(time.Now()) {
			newest = info.ModTime()
		}
	}
	return newest
}

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
		names := append(slices.Clone(journaled), plain.Each(links, func(l files.Want) string { return l.Path })...)
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
