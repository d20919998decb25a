// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

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

// run is the last run of a script.
type run struct {
	start time.Time
	exit  int
	cut   bool // it has no exit code
}

// history reads the runs of scripts.
func (f *Found) history() error {
	list, err := os.ReadDir(f.path(Records, "exec"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.IsDir() || len(e.Name()) != sha256.Size*2 {
			continue
		}
		exit, exitErr := f.number("exec", e.Name(), "exit_code")
		start, startErr := f.number("exec", e.Name(), "last_run_timestamp")
		switch err := cmp.Or(exitErr, startErr); {
		case errors.Is(err, fs.ErrNotExist): // it ran again in Divingbell, too
			f.runs[e.Name()] = run{cut: true}
		case err != nil:
			f.Doubts = append(f.Doubts, fmt.Sprintf("%s/exec/%s: %v", Records, e.Name(), err))
		default:
			f.runs[e.Name()] = run{start: time.Unix(start, 0).UTC(), exit: int(exit)}
		}
	}
	return nil
}

func (f *Found) number(parts ...string) (int64, error) {
	text, err := f.record(parts...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(text), 10, 64)
}

// Ran returns the last run of a script under Divingbell.
func (f *Found) Ran(w spec.Exec) (start time.Time, exit int, ok bool) {
	r, ok := f.last(w)
	return r.start, r.exit, ok && !r.cut
}

// Doubt says of a script of which no run is known why one may have been, "" where none
// was: Divingbell kept a script of that name.
func (f *Found) Doubt(w spec.Exec) string {
	if _, known := f.last(w); known {
		return ""
	}
	if _, err := os.Lstat(f.path(Records, "exec", w.Name)); err != nil {
		return ""
	}
	return "Divingbell ran a script of this name, and kept no run of one with these values: it counts as one that never ran"
}

// last is the last run of a script. A search is not made twice: a node asks at each look.
func (f *Found) last(w spec.Exec) (run, bool) {
	if len(f.runs) == 0 {
		return run{}, false
	}
	key, err := json.Marshal(w)
	if err != nil {
		return run{}, false // of text and numbers there is none
	}
	hash, searched := f.hashes[string(key)]
	if !searched {
		hash = find(w, func(hash string) bool { _, known := f.runs[hash]; return known })
		f.hashes[string(key)] = hash
	}
	r, known := f.runs[hash]
	return r, known
}
