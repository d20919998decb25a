// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

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
