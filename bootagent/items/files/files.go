// SPDX-License-Identifier: Apache-2.0

// Package files keeps small files below /etc as the overlay has them: content,
// owner and mode. What stood there before is kept and put back when a file
// leaves the configuration; directories that had to be made leave with it.
//
// A path is walked without following links, so that no user who owns a directory
// below /etc can lead a write elsewhere; a link at the path itself is replaced
// and kept as an original. The loader applies this kind once to a new root,
// before PID 1 starts; the service keeps it from then on. Kinds that are made of
// files, such as modules and units, have theirs written by it under their own
// name. Limits are files of a name and a form of their own, see [Limits]. Package items, those kinds
// and the handover stage import it.
package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
)

// Name is the kind.
const Name = "files"

// Want is a path and what should stand there: a file, or else a link, or nothing.
type Want struct {
	spec.File
	Link   string // what a symbolic link holds
	Absent bool
}

// Item keeps the wanted files.
type Item struct {
	name    string
	want    []Want
	etc     string
	journal item.Journal
	secrets Secrets
	makes   item.Makes
	ask     func(ctx context.Context, path, content string) error
}

// New returns the item for want; etc is /etc of the root that it acts on.
func New(want []spec.File, etc string, j item.Journal) *Item {
	return Named(Name, plain.Each(want, func(f spec.File) Want { return Want{File: f} }), etc, j)
}

// Named returns the item for the files of another kind. The keys of its entries are
// paths; j shows no others.
func Named(name string, want []Want, etc string, j item.Journal) *Item {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b Want) int { return strings.Compare(a.Path, b.Path) })
	return &Item{name: name, want: want, etc: etc, journal: j}
}

// WithReaders has files kept as they are where the program that reads one does not take what it
// should hold; ask returns its error.
func (i *Item) WithReaders(ask func(ctx context.Context, path, content string) error) *Item {
	i.ask = ask
	return i
}

// WithAccounts has files wait for owners that come in the same run.
func (i *Item) WithAccounts(makes item.Makes) *Item {
	i.makes = makes
	return i
}

// Name implements item.Item.
func (i *Item) Name() string { return i.name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	wanted := map[string]bool{}
	for _, f := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if why := i.lacks(f); why != "" { // what an earlier overlay set leaves, as it is not wanted
			if _, err := i.read(f.Path); len(i.of(f.Path)) == 0 && err == nil {
				drift = append(drift, spec.Drift{Item: i.name, Key: f.Path, To: "secret " + f.Secret, Action: spec.ActionCannot, Reason: why})
			}
			continue
		}
		d, differs := i.compare(f, wanted[f.Path])
		wanted[f.Path] = true
		if due := d.Action == spec.ActionAdd || d.Action == spec.ActionChange; differs && due {
			if err := i.taken(ctx, f); err != nil {
				d.Action, d.Reason = spec.ActionRefuse, err.Error()
			}
		}
		if differs {
			drift = append(drift, d)
		}
	}
	for _, e := range item.Unwanted(i.journal, i.name, wanted) {
		d := spec.Drift{Item: i.name, Key: e.Key, Action: spec.ActionRemove, To: item.Was[state](e).String()}
		if now, err := i.read(e.Key); err == nil {
			d.From = now.String()
		}
		drift = append(drift, d)
	}
	return drift, nil
}

// taken asks the program that reads a file whether it takes what it should hold.
func (i *Item) taken(ctx context.Context, f Want) error {
	switch {
	case f.Secret != "" && i.secrets.Ask != nil:
		return i.secrets.Ask(ctx, f.Path, f.Secret)
	case f.Secret == "" && i.ask != nil:
		return i.ask(ctx, f.Path, f.Content)
	}
	return nil
}

// of are the journal's entries of a path.
func (i *Item) of(path string) []item.Entry {
	return slices.DeleteFunc(i.journal.Entries(i.name), func(e item.Entry) bool { return e.Key != path })
}

// compare reports what is to be done about one file; twice is a path that the
// list has had already.
func (i *Item) compare(f Want, twice bool) (d spec.Drift, differs bool) {
	d = spec.Drift{Item: i.name, Key: f.Path, Action: spec.ActionAdd}
	want, err := i.wanted(f)
	if err == nil && twice {
		err = errors.New("the path is given twice")
	}
	var now state
	if err == nil {
		d.To = want.said(f)
		now, err = i.read(f.Path)
	}
	switch {
	case errors.Is(err, item.ErrNotYet):
		d.Action, d.Reason = spec.ActionDefer, err.Error()
		return d, true
	case err != nil:
		d.Action, d.Reason = spec.ActionRefuse, err.Error()
		return d, true
	case f.Secret != "" && now.is(linked(f.Path)):
		d.Action, d.From = spec.ActionChange, "another value, owner or mode"
		return d, !i.copied(f, want)
	case f.Secret == "" && now.is(want):
		return d, false
	case now.Kind != absent:
		d.Action, d.From = spec.ActionChange, now.String()
	}
	return d, true
}

// group is how many files share an fsync of the journal. Their originals are in memory at
// once.
const group = 64

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	due := item.Due(drift, spec.ActionAdd, spec.ActionChange)
	todo := slices.DeleteFunc(slices.Clone(i.want), func(f Want) bool { return !due[f.Path] })
	made := i.made()
	var errs []error
	for files := range slices.Chunk(todo, group) {
		if err := i.putAll(ctx, files, made); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// putAll writes files, their originals first.
func (i *Item) putAll(ctx context.Context, files []Want, made map[string]bool) error {
	var errs []error
	var entries []item.Entry
	wants := map[string]state{}
	for _, f := range files {
		want, was, err := i.both(f)
		if err == nil && f.Secret != "" {
			if err = ctx.Err(); err == nil && !i.secrets.Later {
				err = i.copy(f, want)
			}
			want = linked(f.Path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write file %q: %w", f.Path, err))
			continue
		}
		if _, twice := wants[f.Path]; twice || was.is(want) { // written again, it would look changed to who goes by times
			continue
		}
		for _, dir := range was.Missing {
			made[dir] = true
		}
		was.Missing = above(f.Path, made)
		wants[f.Path] = want
		entries = append(entries, item.Entry{Item: i.name, Key: f.Path, Prior: item.Raw(was), Applied: item.Raw(want.String()), Scope: item.Root})
	}
	if err := item.Record(ctx, i.journal, entries...); err != nil {
		return err
	}
	var b safepath.Batch
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, b.Sync())
		}
		errs = append(errs, fault.In(i.write(&b, e.Key, wants[e.Key]), "write file %q", e.Key))
	}
	return errors.Join(append(errs, b.Sync())...)
}

// both returns the wanted and the present state of a path.
func (i *Item) both(f Want) (want, now state, err error) {
	if want, err = i.wanted(f); err == nil {
		now, err = i.read(f.Path)
	}
	return want, now, err
}

// made are the directories that were made for files: whichever leaves last removes them.
func (i *Item) made() map[string]bool {
	dirs := map[string]bool{}
	for _, e := range i.journal.Entries(i.name) {
		for _, dir := range item.Was[state](e).Missing {
			dirs[dir] = true
		}
	}
	return dirs
}

// above are those of the directories that a path leads through, outermost first.
func above(path string, made map[string]bool) (dirs []string) {
	rel := strings.TrimPrefix(path, "/etc/")
	for n, c := range rel {
		if c == '/' && made[rel[:n]] {
			dirs = append(dirs, rel[:n])
		}
	}
	return dirs
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var errs []error
	var done []item.Entry
	var b safepath.Batch
	for _, e := range slices.Backward(entries) { // what lies deeper leaves first
		if err := ctx.Err(); err != nil {
			return errors.Join(err, b.Sync())
		}
		if err := errors.Join(i.giveBack(&b, e.Key, item.Was[state](e)), i.dropCopy(e.Key)); err != nil {
			errs = append(errs, fmt.Errorf("restore file %q: %w", e.Key, err))
			continue
		}
		done = append(done, e)
	}
	if err := b.Sync(); err != nil { // else what was given back may be lost, and its original is forgotten
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, item.Forget(ctx, i.journal, done...))...)
}

// giveBack writes what was there, unless it is: a run that was cut keeps originals of what
// it had not come to.
func (i *Item) giveBack(b *safepath.Batch, path string, was state) error {
	if now, err := i.read(path); err == nil && was.Kind != absent && now.is(was) {
		return nil
	}
	return i.write(b, path, was)
}

// Secrets are those that files are of. Such a file is a link below /etc, which the journal
// knows, to a copy in memory that has the owner and mode asked for, which it does not.
type Secrets struct {
	Dir   string                                               // where they are opened
	Lacks func(name string) string                             // why there is none of a name, "" where there is one, or will be
	Ask   func(ctx context.Context, path, secret string) error // what the program that reads a path says of a secret; may be nil
	Later bool                                                 // links alone are written: the memory for copies is that of the next root
}

// copies is the folder of the copies.
const copies = ".files"

// WithSecrets has files of secrets written; without it they cannot be.
func (i *Item) WithSecrets(s Secrets) *Item {
	i.secrets = s
	return i
}

// lacks says why a file cannot have its secrets.
func (i *Item) lacks(f Want) string {
	if i.name != Name { // files of another kind, which asks for itself
		return ""
	}
	return item.Lacks(f.SecretNames(), i.secrets.Lacks)
}

// copyName is the name of a path's copy in the folder.
func copyName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

// copyPath is where a path's copy is.
func (i *Item) copyPath(path string) string {
	return filepath.Join(i.secrets.Dir, copies, copyName(path))
}

// linked is the state of a path whose file is a secret.
func linked(path string) state {
	return state{Kind: link, Target: filepath.Join(spec.SecretDir, copies, copyName(path))}
}

// copied reports whether a path's copy is as it should be: s has owner and mode.
func (i *Item) copied(f Want, s state) bool {
	file := i.copyPath(f.Path)
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || uint32(info.Mode().Perm()) != s.Mode {
		return false
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != s.UID || int(st.Gid) != s.GID {
		return false
	}
	has, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	value, err := os.ReadFile(filepath.Join(i.secrets.Dir, f.Secret))
	return err == nil && bytes.Equal(has, value)
}

// copy writes a path's copy. Its owner comes before its mode: no other user reads it meanwhile.
func (i *Item) copy(f Want, s state) (err error) {
	value, err := os.ReadFile(filepath.Join(i.secrets.Dir, f.Secret))
	if err != nil {
		return fmt.Errorf("secret %q: %w", f.Secret, err)
	}
	folder := filepath.Join(i.secrets.Dir, copies)
	if err := os.Mkdir(folder, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(folder, 0o711); err != nil {
		return err
	}
	return item.Renew(i.copyPath(f.Path), value, fs.FileMode(s.Mode), s.UID, s.GID)
}

// dropCopy removes a path's copy, where it has one.
func (i *Item) dropCopy(path string) error {
	if i.secrets.Dir == "" {
		return nil
	}
	return fault.But(os.Remove(i.copyPath(path)), fs.ErrNotExist)
}
