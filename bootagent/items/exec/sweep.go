// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// maxUnwanted is how many scripts that are not wanted any more are remembered:
// one that may run only once may be wanted again.
const maxUnwanted = 32

// sweep removes what scripts left that are not wanted any more, the records of
// all but the newest included, and what a power cut left half written.
func (i *Item) sweep() error {
	dirs, err := os.ReadDir(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, w := range i.want {
		wanted[i.script(w).dir] = true
	}
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
			continue // a damaged record is for whoever wants the script to remove
		}
		errs = append(errs, s.tidy())
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
			if err := os.Remove(filepath.Join(o.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// tidy removes temporary files of durable writes that never ended: one process
// writes at a time, so what lies there is not being written.
func (s script) tidy() error {
	left, err := filepath.Glob(filepath.Join(s.dir, "."+runFile+".*"))
	for _, name := range left {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
