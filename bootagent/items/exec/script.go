// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// script is a wanted script and where it lives.
type script struct {
	want spec.Exec
	hash string
	dir  string
}

func (i *Item) script(w spec.Exec) script {
	hash := identity(w, i.secrets.All)
	return script{want: w, hash: hash, dir: i.place(hash)}
}

func (i *Item) place(hash string) string { return filepath.Join(i.dir, hash[:32]) }

// key names the script in the journal: a changed script is another one.
func (s script) key() string { return s.want.Name + "@" + s.hash[:16] }

// limit is how long it may take.
func (s script) limit() time.Duration {
	if s.want.Timeout <= 0 {
		return spec.ExecTimeout * time.Second
	}
	return time.Duration(min(s.want.Timeout, 1<<32)) * time.Second // 136 years do not overflow
}

// identity is the SHA-256 of name, text, arguments and environment, each with
// its length before it, so that no two different scripts spell the same. Where it needs
// secrets, what these are sealed as follows.
func identity(w spec.Exec, secrets []spec.Secret) string {
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
	if sealed := identityOf(w, secrets); len(sealed) > 0 {
		list(sealed)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// environ is env as NAME=value, sorted.
func environ(env map[string]string) []string {
	return plain.Each(slices.Sorted(maps.Keys(env)), func(name string) string { return name + "=" + env[name] })
}

// command is the argument list. The interpreter is named, so that neither an exec
// bit nor an exec mount is needed.
func command(w spec.Exec) []string {
	return append(append(rules.Interpreter(w.Data), "./"+w.Name), w.Args...)
}

// validate refuses a script that is not valid, or that this node has no program
// for.
func validate(w spec.Exec) error {
	if err := rules.Exec(w); err != nil {
		return err
	}
	for _, data := range []string{w.Data, w.Revert} {
		program := rules.Interpreter(data)[0]
		if info, err := os.Stat(program); data != "" && (err != nil || info.IsDir() || info.Mode()&0o111 == 0) {
			return fmt.Errorf("the interpreter %q is not a program of this node", program)
		}
	}
	return nil
}

// undoing is a revert script on its way to be run.
type undoing struct {
	*undo
	item *Item
}

// revertChecks check the journal's entry: it lies on a disk that may
// have been in other hands.
var revertChecks = check.List[*undoing]{
	{Name: "signed", OK: isSigned},
	{Name: "own directory", OK: directoryIsOurs},
}

// isSigned puts the revert script of a signed overlay in the place of the journal's.
func isSigned(u *undoing) error {
	for _, s := range u.item.signed() {
		if w := s.Script; w.Revert != "" && identity(w, s.Secrets) == u.Hash {
			w.Data, w.Revert = w.Revert, ""
			u.Script = w
			return nil
		}
	}
	return errors.New("no signed overlay on this node has it, so it is not run: undo it by hand")
}

// directoryIsOurs: a link in its place would have the script, and what it says,
// written elsewhere.
func directoryIsOurs(u *undoing) error { return ownfiles.Folder(u.item.script(u.Script).dir) }

// maxUnwanted is how many scripts that are not wanted any more are remembered:
// one that may run only once may be wanted again.
const maxUnwanted = 32

// sweep removes what scripts left that are not wanted any more, the records of
// all but the newest included, and what a power cut left half written.
func (i *Item) sweep() error {
	dirs, err := os.ReadDir(i.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	wanted := plain.Map(i.want, func(w spec.Exec) (dir string, is bool) { return i.script(w).dir, true })
	type old struct {
		dir string
		record
	}
	var unwanted []old
	var errs []error
	for _, d := range dirs {
		s := script{dir: filepath.Join(i.dir, d.Name())}
		r, err := s.history()
		if err != nil || i.running(r) {
			continue // removing a damaged record is left to a run that wants the script
		}
		if i.unit(r) == "" { // else who waits for this boot's run, which has no end yet, may be writing that
			left, err := filepath.Glob(filepath.Join(s.dir, "."+runFile+".*")) // of durable writes that never ended
			errs = append(errs, err)
			for _, name := range left {
				errs = append(errs, os.Remove(name))
			}
		}
		switch {
		case wanted[s.dir]:
		case r.none() || !r.Keep && r.Root != i.scopes.Root:
			errs = append(errs, os.RemoveAll(s.dir))
		default:
			unwanted = append(unwanted, old{s.dir, r})
		}
	}
	slices.SortFunc(unwanted, func(a, b old) int { return b.Start.Compare(a.Start) })
	for n, o := range unwanted {
		if n >= maxUnwanted {
			errs = append(errs, os.RemoveAll(o.dir))
			continue
		}
		for _, name := range []string{filepath.Base(o.Name), logFile, logFile + ".old"} {
			errs = append(errs, fault.But(os.Remove(filepath.Join(o.dir, name)), fs.ErrNotExist))
		}
	}
	return errors.Join(errs...)
}

// Secrets are those that scripts are given.
type Secrets struct {
	Dir   string                   // where they are opened
	All   []spec.Secret            // of the overlay
	Lacks func(name string) string // why there is none of a name, "" where there is one
}

// Signed is a script of an overlay whose signature this node can verify.
type Signed struct {
	Script  spec.Exec
	Secrets []spec.Secret // of that overlay
}

// lacks says why a script cannot have its secrets.
func (i *Item) lacks(w spec.Exec) string { return item.Lacks(w.SecretNames(), i.secrets.Lacks) }

// identityOf says what a script's secrets were sealed as: one that is given another value is
// another script. The values themselves are in nobody's identity.
func identityOf(w spec.Exec, secrets []spec.Secret) (list []string) {
	for _, name := range w.SecretNames() {
		sealed := ""
		if n := slices.IndexFunc(secrets, func(s spec.Secret) bool { return s.Name == name }); n >= 0 {
			sealed = digest.Of([]byte(secrets[n].Sealed))
		}
		list = append(list, name+" "+sealed)
	}
	return append(list, environ(w.SecretEnv)...)
}

// files are the files of a script's variables that are secrets. A revert script goes without
// those that are gone.
func (i *Item) files(w spec.Exec) map[string]string {
	files := map[string]string{}
	for variable, name := range w.SecretEnv {
		file := filepath.Join(i.secrets.Dir, name)
		if _, err := os.Lstat(file); err == nil || i.lacks(w) == "" {
			files[variable] = file
		}
	}
	return files
}
