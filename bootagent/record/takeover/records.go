// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
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
	f.Originals.Perm = cmp.Or(f.Originals.Perm, &spec.Perm{IgnoreMissing: true})
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
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

// Divingbell kept the runs of a script under the SHA-256 of all that its values said of
// it, but for its name, as Helm's template prints them: a list in which each entry is
// the list so far, and one key with its value. An overlay says neither which defaults
// its author wrote out nor what was in quotes, so there is a hash for each way.

// Bounds of the search: a list doubles with each key, so Helm itself rendered none that
// is much longer, and a script whose values can be written in so many ways counts as one
// that is not known.
const (
	longest = 16 << 20  // bytes of one list
	effort  = 256 << 20 // bytes of all
	few     = 8         // arguments, each of which may have been in quotes or not
)

// find returns the hash of a script that is known, "" where none of its ways is.
func find(w spec.Exec, known func(hash string) bool) string {
	keys, left := ways(w), effort
	var walk func(n int, list string) string
	walk = func(n int, list string) string {
		if left -= len(list); left < 0 || len(list) > longest {
			return ""
		}
		if n == len(keys) {
			if hash := fmt.Sprintf("%x", sha256.Sum256([]byte(list))); known(hash) {
				return hash
			}
			return ""
		}
		for _, said := range keys[n] {
			if left < 0 {
				break
			}
			next := list
			switch {
			case said == "":
			case list == "[]":
				next = "[[]" + said + "]"
			default:
				next = list[:len(list)-1] + " " + list + said + "]"
			}
			if hash := walk(n+1, next); hash != "" {
				return hash
			}
		}
		return ""
	}
	return walk(0, "[]")
}

// ways are, for each key in order, what the list may say of it; "" is nothing.
func ways(w spec.Exec) (keys [][]string) {
	add := func(key string, absent bool, values ...string) {
		var said []string
		if absent {
			said = []string{""}
		}
		for _, v := range values {
			said = append(said, ";"+key+":"+v)
		}
		keys = append(keys, said)
	}
	data, timeout := []string{w.Data}, cmp.Or(w.Timeout, spec.ExecTimeout)
	if bare, ok := strings.CutPrefix(w.Data, "#!/bin/bash\n"); ok {
		data = append(data, bare) // the line is caisson's where the author wrote none
	}
	add("args", len(w.Args) == 0, arguments(w.Args)...)
	add("blocking_policy", w.Blocking == "" || w.Blocking == "foreground", cmp.Or(w.Blocking, "foreground"))
	add("data", false, data...)
	for _, name := range slices.Sorted(maps.Keys(w.Env)) {
		add("env:"+name, false, printed(w.Env[name])...)
	}
	add("rerun_interval", w.RerunInterval == 0, seconds(w.RerunInterval)...)
	add("rerun_policy", w.Rerun == "" || w.Rerun == "always", cmp.Or(w.Rerun, "always"))
	add("retry_interval", w.RetryInterval == 0 || w.RetryInterval == w.RerunInterval, seconds(w.RetryInterval)...)
	add("timeout", w.Timeout == 0, seconds(timeout)...)
	last := &keys[len(keys)-1]
	for _, value := range seconds(timeout) {
		*last = append(*last, ";script_timeout:"+value) // as the manual calls it; no other key is between the two
	}
	return keys
}

// arguments are how a list of them is printed: all in quotes and none where there are too
// many ways.
func arguments(list []string) []string {
	if bare := slices.Clone(list); len(list) > few {
		for i, a := range bare {
			bare[i] = unquoted(a)
		}
		return slices.Compact([]string{"[" + strings.Join(list, " ") + "]", "[" + strings.Join(bare, " ") + "]"})
	}
	all := []string{""}
	for _, a := range list {
		var longer []string
		for _, begun := range all {
			for _, v := range printed(a) {
				longer = append(longer, begun+" "+v)
			}
		}
		all = longer
	}
	for i, text := range all {
		all[i] = "[" + strings.TrimPrefix(text, " ") + "]"
	}
	return all
}

// seconds are how an interval or a timeout is printed, as a number of a file and of a
// command line; nothing where there is none.
func seconds(n int64) []string {
	switch {
	case n == 0:
		return nil
	case n < 0:
		return []string{"infinity"}
	}
	return slices.Compact([]string{strconv.FormatInt(n, 10), float(float64(n))})
}

// printed are how a text is printed that was in quotes, and that was not.
func printed(text string) []string { return slices.Compact([]string{text, unquoted(text)}) }

// number matches what YAML 1.1 reads as a number that is not whole.
var number = regexp.MustCompile(`^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// unquoted is how Helm prints a word of a values file that is not in quotes: as the
// value that YAML 1.1 takes it for, with each number a float64.
func unquoted(text string) string {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return "<nil>"
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return "true"
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return "false"
	}
	if !strings.ContainsRune("+-.0123456789", rune(text[0])) {
		return text
	}
	digits := strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return float(float64(n))
	}
	if n, err := strconv.ParseUint(digits, 0, 64); err == nil {
		return float(float64(n))
	}
	if n, err := strconv.ParseFloat(digits, 64); err == nil && number.MatchString(digits) {
		return float(n)
	}
	return text
}

// float is how Go's templates print a float64.
func float(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }
