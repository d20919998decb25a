// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// script is a wanted script and where it lives.
type script struct {
	want spec.Exec
	hash string
	dir  string
}

func (i *Item) script(w spec.Exec) script {
	hash := identity(w)
	return script{want: w, hash: hash, dir: i.folder(hash)}
}

func (i *Item) folder(hash string) string { return filepath.Join(i.dir, hash[:32]) }

// key names the script in the journal: a changed script is another one.
func (s script) key() string { return s.want.Name + "@" + s.hash[:16] }

// identity is the SHA-256 of name, text, arguments and environment, each with
// its length before it, so that no two different scripts spell the same.
func identity(w spec.Exec) string {
	h := sha256.New()
	put := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	list := func(items []string) {
		put(fmt.Sprint(len(items)))
		for _, s := range items {
			put(s)
		}
	}
	put(w.Name)
	put(w.Data)
	list(w.Args)
	list(environ(w.Env))
	return hex.EncodeToString(h.Sum(nil))
}

// environ is env as NAME=value, sorted.
func environ(env map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// command is the argument list: the interpreter that the first line names, as
// the kernel would read it, so that neither an exec bit nor an exec mount is
// needed; sh(1) for a script without such a line.
func command(w spec.Exec) []string {
	args := []string{"/bin/sh"}
	if rest, ok := strings.CutPrefix(w.Data, "#!"); ok {
		first, _, _ := strings.Cut(rest, "\n")
		first = strings.TrimSpace(first)
		args = []string{first}
		if n := strings.IndexAny(first, " \t"); n >= 0 {
			args = []string{first[:n], strings.TrimSpace(first[n:])} // one option, whatever it holds
		}
	}
	return append(append(args, "./"+w.Name), w.Args...)
}

// reserved are the names of our own files beside the script.
var reserved = []string{".", "..", runFile, logFile, logFile + ".old", logFile + ".launch"}

func validate(w spec.Exec) error {
	switch {
	case w.Name == "" || len(w.Name) > 200 || strings.ContainsAny(w.Name, "/\x00\n"):
		return fmt.Errorf("the name %q is not usable as a file name", w.Name)
	case slices.Contains(reserved, w.Name):
		return fmt.Errorf("the name %q is taken", w.Name)
	case !slices.Contains([]string{"", "always", "never", "once_successfully"}, w.Rerun):
		return fmt.Errorf("the rerun policy %q is unknown", w.Rerun)
	case !slices.Contains([]string{"", "foreground", "foreground_halt_pod_on_failure", "background"}, w.Blocking):
		return fmt.Errorf("the blocking policy %q is unknown", w.Blocking)
	case !slices.Contains([]string{"", "per-root", "per-machine"}, w.Once):
		return fmt.Errorf("once is %q, not per-root or per-machine", w.Once)
	case w.Timeout < 0 || w.RerunInterval < -1 || w.RetryInterval < -1 || w.RerunMax < 0 || w.RetryMax < 0:
		return errors.New("a time or a count is negative")
	}
	for _, arg := range w.Args {
		if strings.Contains(arg, "\x00") {
			return errors.New("an argument holds a NUL")
		}
	}
	for name, value := range w.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return fmt.Errorf("the environment variable %q cannot be set", name)
		}
	}
	for _, data := range []string{w.Data, w.Revert} {
		args := command(spec.Exec{Data: data})
		if info, err := os.Stat(args[0]); data != "" && (err != nil || info.IsDir() || info.Mode()&0o111 == 0 || !filepath.IsAbs(args[0])) {
			return fmt.Errorf("the interpreter %q is no program of this node", args[0])
		}
	}
	if w.Data == "" {
		return errors.New("there is no script")
	}
	return nil
}
