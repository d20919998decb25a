// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// truth reads a flag as the readers of YAML 1.1 and 1.2 do.
func truth(v *tree.Value, key string) bool { return flag(text(v, key)) }

func flag(word string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y", "1"}, strings.ToLower(word))
}

func denies(word string) bool {
	return slices.Contains([]string{"false", "no", "off", "n", "0"}, strings.ToLower(word))
}

// first returns the first text that is not empty.
func first(v *tree.Value, keys ...string) string {
	return cmp.Or(plain.Each(keys, func(key string) string { return text(v, key) })...)
}

func text(v *tree.Value, key string) string {
	if f := v.Get(key); f != nil && f.Kind == tree.Scalar {
		return f.Text
	}
	return ""
}

// account is a user, whatever tool describes it.
type account struct {
	name, password, uid, shell string
	keys, groups               []string
	sudo                       bool     // root without a password
	without                    []string // what the account had elsewhere and has not here
}

// account takes a user with no right that it did not have: a rule of sudo that says
// less than user_sudo does is left out, and a group that stands for one stays a group.
func (r *reading) account(at int, a account) {
	value := map[string]any{"user_name": a.name}
	for key, text := range map[string]string{"user_crypt_passwd": a.password, "user_uid": a.uid, "user_shell": a.shell} {
		if text != "" {
			value[key] = text
		}
	}
	if a.sudo {
		value["user_sudo"] = true
	}
	if i := slices.Index(a.groups, "wheel"); i >= 0 {
		a.groups = slices.Delete(slices.Clone(a.groups), i, i+1)
		a.without = append(a.without, "group wheel, which Debian has not: its group sudo asks for a password, user_sudo asks for none")
	}
	if len(a.groups) > 0 {
		value["user_groups"] = list(a.groups)
	}
	if a.keys != nil {
		value["user_sshkeys"] = list(a.keys)
	}
	p := r.Item(at, "user "+a.name).Take("uamlite", "user "+a.name, []string{"users", "+"}, value)
	if len(a.without) > 0 {
		p.Why = "taken without " + strings.Join(a.without, "; without ")
	}
}

func list(texts []string) []any { return plain.Each(texts, func(t string) any { return t }) }

// file is a file with its content, whatever tool describes it.
type file struct {
	path, content, mode, owner, group string
	appends                           bool
}

// file takes a file below /etc; those that have a kind of their own are read as
// what they are.
func (r *reading) file(at int, f file) {
	what := "file " + f.path
	dir := path.Dir(f.path)
	switch {
	case f.appends:
		r.Miss(at, what, "it is appended to a file: a site has whole files")
	case f.path == "/etc/hostname":
		r.Miss(at, what, "a node's name is that in nodes")
	case strings.HasPrefix(f.path, unitDirectory):
		f.path = strings.TrimPrefix(f.path, unitDirectory)
		r.unitFile(at, f)
	case dir == "/etc/sysctl.d" || f.path == "/etc/sysctl.conf":
		r.nested(at, f, readSysctl)
	case dir == "/etc/security/limits.d" || f.path == "/etc/security/limits.conf":
		r.nested(at, f, readLimits)
	case f.path == "/etc/fstab":
		r.nested(at, f, readFstab)
	case dir == "/etc/modules-load.d" || f.path == "/etc/modules":
		r.nested(at, f, readModulesLoad)
	case dir == "/etc/netplan":
		r.nested(at, f, readNetplan)
	case !strings.HasPrefix(f.path, "/etc/"):
		r.Miss(at, what, "a site has files below /etc only: put others into a package")
	default:
		value := map[string]any{"content": f.content}
		for key, text := range map[string]string{"mode": f.mode, "owner": f.owner, "group": f.group} {
			if text != "" && !(key != "mode" && text == "root") {
				value[key] = text
			}
		}
		r.Item(at, what).Take("files", f.path, []string{f.path}, value)
	}
}

// without names the rights that a file had and that what is made of it has not.
func (f file) without() string {
	out := ""
	for _, w := range [][3]string{{"its mode ", f.mode, "0644"}, {"its owner ", f.owner, "root"}, {"its group ", f.group, "root"}} {
		if w[1] != "" && w[1] != w[2] && w[1] != "0" {
			out += ", " + w[0] + w[1]
		}
	}
	return strings.Replace(out, ", ", "taken without ", 1)
}

// nested reads the content of a file that has a format of its own.
func (r *reading) nested(at int, f file, parse func(*reading)) {
	in := &reading{&coverage.Reading{Name: r.Name + ":" + f.path, Data: f.content}}
	if parse(in); in.Broken != nil {
		r.Miss(at, "file "+f.path, in.Broken.Error())
		return
	}
	r.Items = append(r.Items, in.Items...)
	switch why := f.without(); {
	case len(in.Items) == 0:
		r.Miss(at, "file "+f.path, "it says nothing, and would hide the file of its name that a package brings")
	case why != "":
		r.Miss(at, "file "+f.path, why)
	}
}

// octal returns a mode in octal. A number is read as YAML and JSON read it: decimal
// unless it begins with 0; quoted text is octal.
func octal(v *tree.Value, key string) string {
	text := text(v, key)
	if text == "" {
		return ""
	}
	base := 8
	if v.Get(key).Plain && !strings.HasPrefix(text, "0") {
		base = 10
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "0o"), base, 16)
	if err != nil {
		return text // a site says what is wrong with it
	}
	return fmt.Sprintf("%04o", n)
}

// dataURL returns the content of a data: URL.
func dataURL(source string) (string, error) {
	rest, ok := strings.CutPrefix(source, "data:")
	if !ok {
		return "", fmt.Errorf("its content is at %s: an import fetches nothing", source)
	}
	kind, data, ok := strings.Cut(rest, ",")
	if !ok {
		return "", fmt.Errorf("its data: URL has no comma")
	}
	if strings.HasSuffix(kind, ";base64") {
		raw, err := base64.StdEncoding.DecodeString(data)
		return string(raw), err
	}
	return url.PathUnescape(data)
}

// unit takes a systemd unit. A text that lies in a file beside the document is named.
func (r *reading) unit(u *tree.Value) {
	name, at, before := text(u, "name"), line(u), len(r.Items)
	beside := map[string]string{"contents_local": "its text is in a local file: import that file too"}
	r.Rest(u, "unit "+name, beside, "name", "mask", "enabled", "contents", "dropins")
	if truth(u, "mask") { // which has no file of its own
		p := r.Item(at, "unit "+name).Take("units", name+" state", []string{name, "state"}, spec.UnitMasked)
		if u.Get("contents") != nil || u.Get("dropins") != nil {
			p.Why = "taken without its text, which a masked unit does not have"
		}
		return
	}
	if c := u.Get("contents"); c != nil && len(c.List)+len(c.Fields) > 0 {
		r.Miss(line(c), "unit "+name, "its content is not a text")
	} else if text(u, "contents") != "" {
		r.unitFile(line(c), file{path: name, content: c.Text})
	}
	r.Entries(u, "dropins", func(d *tree.Value) {
		path := name + ".d/" + text(d, "name")
		r.Rest(d, "unit "+path, beside, "name", "contents")
		if c := d.Get("contents"); c != nil && len(c.List)+len(c.Fields) == 0 {
			r.unitFile(line(d), file{path: path, content: c.Text})
		} else if d.Get("contents_local") == nil {
			r.Miss(line(d), "unit "+path, "it has no text")
		}
	})
	if text(u, "enabled") != "" {
		state := spec.UnitDisabled
		if truth(u, "enabled") {
			state = spec.UnitEnabled
		}
		r.Item(at, "unit "+name).Take("units", name+" state", []string{name, "state"}, state)
	}
	if len(r.Items) == before {
		r.Miss(at, "unit "+name, "it says no more than its name")
	}
}

// unitFile takes a unit or a drop-in of one, whose path is below the directory of units.
func (r *reading) unitFile(at int, f file) {
	what := "unit " + f.path
	var p *coverage.Item
	unit, dropIn, isBelow := strings.Cut(f.path, "/")
	switch {
	case !isBelow && f.content == "": // which masks it
		p = r.Item(at, what).Take("units", unit+" state", []string{unit, "state"}, spec.UnitMasked)
	case !isBelow:
		p = r.Item(at, what).Take("units", unit+" content", []string{unit, "content"}, f.content)
	case strings.HasSuffix(unit, ".d") && strings.HasSuffix(dropIn, ".conf"):
		unit, dropIn = strings.TrimSuffix(unit, ".d"), strings.TrimSuffix(dropIn, ".conf")
		p = r.Item(at, what).Take("units", unit+" drop-in "+dropIn, []string{unit, "dropIns", dropIn}, f.content)
	default:
		r.Miss(at, what, "it is neither a unit nor a drop-in; a link that enables a unit is its state in conf.units")
		return
	}
	p.Why = f.without()
}

// line is where a value stands.
func line(v *tree.Value) int { return int(v.At.Line) }
