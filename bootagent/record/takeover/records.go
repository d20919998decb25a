// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

var errForm = errors.New("not in the form that Divingbell writes")

// sysctl reads "key = value", as sysctl(8) prints a parameter.
func (f *Found) sysctl(_, text string) error {
	key, value, ok := strings.Cut(text, " =")
	s := spec.Sysctl{Key: rules.SysctlPath(strings.TrimSpace(key)), Value: strings.TrimPrefix(value, " ")}
	if !ok {
		return errForm
	}
	if err := rules.Sysctl(s); err != nil {
		return err
	}
	f.Originals.Sysctl = append(f.Originals.Sysctl, s)
	return nil
}

// ethtool reads "interface feature on".
func (f *Found) ethtool(_, text string) error {
	words := strings.Fields(text)
	if len(words) != 3 || words[2] != "on" && words[2] != "off" {
		return errForm
	}
	if err := rules.Interface(words[0]); err != nil {
		return err
	}
	f.Originals.Ethtool = append(f.Originals.Ethtool, spec.Feature{Interface: words[0], Feature: words[1], On: words[2] == "on"})
	return nil
}

// mount reads a copy of the unit that Divingbell wrote, see systemd.mount(5).
func (f *Found) mount(_, text string) error {
	m := spec.Mount{ID: "divingbell"}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "What":
			m.Device = value
		case "Where":
			m.Target = path.Clean(value)
		case "Type":
			m.Type = value
		case "Options":
			m.Options = strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	if err := rules.Mount(m); err != nil {
		return err
	}
	f.Originals.Mounts = append(f.Originals.Mounts, m)
	return nil
}

// perm reads two lines: "mode path" and "owner:group path". A path may hold blanks.
func (f *Found) perm(_, text string) error {
	first, second, _ := strings.Cut(text, "\n")
	mode, name, ok := strings.Cut(first, " ")
	owners, again, _ := strings.Cut(second, " ")
	owner, group, both := strings.Cut(owners, ":")
	if !ok || !both || again != name {
		return errForm
	}
	p := spec.PermPath{Path: name, Owner: owner, Group: group, Mode: "0" + mode}
	if owner == "UNKNOWN" || group == "UNKNOWN" {
		return errors.New("it holds no number for an owner without a name, so that cannot be put back")
	}
	if info, err := os.Lstat(f.path(name)); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return fmt.Errorf("%s is a link, and what is recorded is the link's: the file behind it stays as it is", name)
	}
	if err := rules.PermPath(p); err != nil {
		return err
	}
	if f.Originals.Perm == nil {
		f.Originals.Perm = &spec.Perm{IgnoreMissing: true}
	}
	f.Originals.Perm.Paths = append(f.Originals.Perm.Paths, p)
	return nil
}
