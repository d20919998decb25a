// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// run is the last run of a script: an interrupted one has no exit code and is not
// among them.
type run struct {
	start time.Time
	exit  int
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
		case errors.Is(err, fs.ErrNotExist): // it was cut, and ran again in Divingbell, too
		case err != nil:
			f.Doubts = append(f.Doubts, fmt.Sprintf("%s/exec/%s: %v", Records, e.Name(), err))
		default:
			f.runs[e.Name()] = run{time.Unix(start, 0).UTC(), int(exit)}
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
	for _, hash := range hashes(w) {
		if r, known := f.runs[hash]; known {
			return r.start, r.exit, true
		}
	}
	return time.Time{}, 0, false
}

// hashes are the names under which Divingbell may have kept the runs of a script:
// SHA-256 of all that its values said of it, but for its name. An overlay does not
// say which defaults its author wrote out, nor how, so there is one for each way.
func hashes(w spec.Exec) []string {
	// A key's ways to be written; "" is not at all.
	type choice struct {
		key    string
		values []string
	}
	data := []string{w.Data}
	if bare, ok := strings.CutPrefix(w.Data, "#!/bin/bash\n"); ok {
		data = append(data, bare) // the line is caisson's where the author wrote none
	}
	policy := func(word, usual string) []string {
		if word == "" || word == usual {
			return []string{"", usual}
		}
		return []string{word}
	}
	args, retry, timeout := []string{""}, number(w.RetryInterval), number(w.Timeout)
	if len(w.Args) > 0 {
		args = []string{bracketed(w.Args)}
	}
	if w.RetryInterval != 0 && w.RetryInterval == w.RerunInterval {
		retry = append(retry, "") // which is the same
	}
	if w.Timeout == 0 {
		timeout = append(timeout, strconv.Itoa(spec.ExecTimeout))
	}
	choices := []choice{
		{"args", args}, {"blocking_policy", policy(w.Blocking, "foreground")}, {"data", data}, {"rerun_interval", number(w.RerunInterval)},
		{"rerun_policy", policy(w.Rerun, "always")}, {"retry_interval", retry}, {"timeout", timeout},
	}
	var found []string
	var walk func(n int, said map[string]string)
	walk = func(n int, said map[string]string) {
		if n == len(choices) {
			found = append(found, hash(said, w.Env))
			return
		}
		for _, v := range choices[n].values {
			next := maps.Clone(said)
			if v != "" {
				next[choices[n].key] = v
			}
			walk(n+1, next)
		}
	}
	walk(0, map[string]string{})
	return found
}

// number is how an interval or a timeout was written, "" for one that was not.
func number(n int64) []string {
	switch {
	case n == 0:
		return []string{""}
	case n < 0:
		return []string{"infinity"}
	}
	ways := []string{strconv.FormatInt(n, 10)}
	if float := strconv.FormatFloat(float64(n), 'g', -1, 64); float != ways[0] {
		ways = append(ways, float) // Helm made one of it
	}
	return ways
}

// bracketed is how Helm prints a list.
func bracketed(list []string) string { return "[" + strings.Join(list, " ") + "]" }

// hash builds a list as Divingbell's template does: each entry is the list so far
// and one key with its value, keys in order, and the printed list is hashed.
func hash(said map[string]string, env map[string]string) string {
	var list []string
	add := func(text string) { list = append(list, bracketed(list)+text) }
	keys := slices.Collect(maps.Keys(said))
	if len(env) > 0 {
		keys = append(keys, "env")
	}
	slices.Sort(keys)
	for _, key := range keys {
		if key != "env" {
			add(";" + key + ":" + said[key])
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			add(";env:" + name + ":" + env[name])
		}
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(bracketed(list))))
}
