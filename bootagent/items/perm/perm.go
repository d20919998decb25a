// SPDX-License-Identifier: Apache-2.0

// Package perm keeps the owner, group and mode of paths outside the layer, as
// chown(1) and chmod(1) set them, and puts the originals back.
//
// It never follows a symbolic link: a file is opened once (open(2), O_PATH) and
// looked at and changed through that. The owner is set before the mode, because
// chown(2) takes setuid and setgid away. Only package bootagent imports it.
package perm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Name is the kind.
const Name = "perm"

// Item keeps the wanted paths.
type Item struct {
	want    spec.Perm
	state   string // a folder on the state disk
	journal item.Journal
	log     func(format string, args ...any)
}

// New is the item for want, nil for nothing. Originals of files on the disk that
// state lies on live as long as that disk, if it has a scope; other files go
// with the root.
func New(want *spec.Perm, state string, j item.Journal, log func(format string, args ...any)) *Item {
	i := &Item{state: state, journal: j, log: log}
	if want != nil {
		i.want = *want
	}
	return i
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// attr is what a file's permissions are.
type attr struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // the lower twelve bits
	Ino  uint64 `json:"ino,omitempty"`
}

func (a attr) String() string { return fmt.Sprintf("%04o %d:%d", a.Mode, a.UID, a.GID) }

// is compares without the inode.
func (a attr) is(b attr) bool { return a.UID == b.UID && a.GID == b.GID && a.Mode == b.Mode }

// applied is what the item last set; Attr.Ino is 0 until it is known to be done.
type applied struct {
	Attr attr   `json:"attr"`
	Rule string `json:"rule"`
}

// wish is what is wanted of one file: rules in the author's order.
type wish struct {
	path  string
	rules []rule
	text  string
}

// wishes expands the patterns; drift is for what cannot be.
func (i *Item) wishes() (list []*wish, drift []spec.Drift) {
	byPath := map[string]*wish{}
	for _, p := range i.want.Paths {
		stop := func(action, format string, args ...any) {
			drift = append(drift, spec.Drift{Item: Name, Key: p.Path, To: describe(p), Action: action, Reason: fmt.Sprintf(format, args...)})
		}
		r, err := parseRule(p)
		if err != nil {
			stop(spec.ActionRefuse, "%v", err)
			continue
		}
		if !filepath.IsAbs(p.Path) || filepath.Clean(p.Path) != p.Path || strings.Contains(p.Path, "\x00") {
			stop(spec.ActionRefuse, "the path is not absolute and clean")
			continue
		}
		files, err := filepath.Glob(p.Path) // sorted; a plain path is its own only match
		if err != nil {
			stop(spec.ActionRefuse, "the pattern is malformed: %v", err)
			continue
		}
		if len(files) == 0 && !i.want.IgnoreMissing {
			stop(spec.ActionDefer, "there is no such path yet")
		}
		for _, path := range files {
			w := byPath[path]
			if w == nil {
				w = &wish{path: path}
				byPath[path] = w
				list = append(list, w)
			}
			w.rules = append(w.rules, r)
			w.text += describe(p) + ";"
		}
	}
	return list, drift
}

func describe(p spec.PermPath) string {
	return strings.TrimSpace(p.Mode + " " + p.Owner + ":" + p.Group)
}

// to is what the file should be, from what it is.
func (w *wish) to(now attr, dir bool) attr {
	for _, r := range w.rules {
		now = r.apply(now, dir)
	}
	return now
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	list, drift := i.wishes()
	entries := i.entries()
	wanted := map[string]bool{}
	for _, w := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.path] = true
		d := spec.Drift{Item: Name, Key: w.path, Action: spec.ActionChange}
		f, err := open(w.path)
		if err != nil {
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
			drift = append(drift, d)
			continue
		}
		to := w.to(f.attr, f.dir)
		f.close()
		d.From, d.To = f.attr.String(), to.String()
		if !f.attr.is(to) && !i.once(entries[w.path], w) {
			drift = append(drift, d)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, e := range i.journal.Entries(Name) {
		if wanted[e.Key] {
			continue
		}
		was, _ := decode(e)
		d := spec.Drift{Item: Name, Key: e.Key, To: was.String(), Action: spec.ActionRemove}
		if f, err := open(e.Key); err == nil {
			d.From = f.attr.String()
			f.close()
		}
		drift = append(drift, d)
	}
	return drift, nil
}

// once reports whether the policy is to set a file one time only and that was done.
func (i *Item) once(e item.Entry, w *wish) bool {
	if i.want.Rerun != "never" && i.want.Rerun != "once_successfully" && i.want.Interval >= 0 {
		return false
	}
	_, did := decode(e)
	return did.Attr.Ino != 0 && did.Rule == w.text
}

func (i *Item) entries() map[string]item.Entry {
	found := map[string]item.Entry{}
	for _, e := range i.journal.Entries(Name) {
		found[e.Key] = e
	}
	return found
}

func decode(e item.Entry) (was attr, did applied) {
	_ = json.Unmarshal(e.Prior, &was) // the journal's checksum vouches for both
	_ = json.Unmarshal(e.Applied, &did)
	return was, did
}

// Apply implements item.Item. The journal learns the originals before, and the
// inodes after: an overlay gives a file a new one when it is first changed.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	due := map[string]bool{}
	for _, d := range drift {
		due[d.Key] = due[d.Key] || d.Action == spec.ActionChange
	}
	var errs []error
	var entries []item.Entry
	todo := map[string]attr{}
	list, _ := i.wishes()
	had := i.entries()
	for _, w := range list {
		if !due[w.path] {
			continue
		}
		f, err := open(w.path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		to := w.to(f.attr, f.dir)
		f.close()
		to.Ino = 0
		todo[w.path] = to
		entries = append(entries, item.Entry{Item: Name, Key: w.path, Prior: item.Raw(f.attr), Applied: item.Raw(applied{to, w.text}), Scope: i.scope(f.dev)})
	}
	if len(entries) == 0 {
		return errors.Join(errs...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.journal.Record(entries...); err != nil {
		return err
	}
	var done, undone []item.Entry
	for _, e := range entries {
		ino, err := set(ctx, e.Key, todo[e.Key])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set permissions of %s: %w", e.Key, err))
			if _, known := had[e.Key]; !known {
				undone = append(undone, e)
			}
			continue
		}
		_, did := decode(e)
		did.Attr.Ino = ino
		e.Applied = item.Raw(did)
		done = append(done, e)
	}
	return errors.Join(append(errs, i.journal.Record(done...), i.journal.Forget(undone...))...)
}

// scope is the disk's for files beside the state folder.
func (i *Item) scope(dev uint64) item.Scope {
	var st unix.Stat_t
	if i.state != "" && unix.Stat(i.state, &st) == nil && st.Dev == dev {
		return item.Disk
	}
	return item.Root
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var errs []error
	var done []item.Entry
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		was, did := decode(e)
		switch f, err := open(e.Key); {
		case errors.Is(err, fs.ErrNotExist):
			i.log("%s is gone: its permissions cannot be put back", e.Key)
		case err != nil:
			errs = append(errs, fmt.Errorf("restore permissions of %s: %w", e.Key, err))
			continue
		default:
			f.close()
			if f.attr.Ino != was.Ino && f.attr.Ino != did.Attr.Ino && (did.Attr.Ino != 0 || !f.attr.is(did.Attr)) {
				i.log("%s was replaced since: its permissions are left as they are", e.Key)
				break
			}
			if _, err := set(ctx, e.Key, was); err != nil {
				errs = append(errs, fmt.Errorf("restore permissions of %s: %w", e.Key, err))
				continue
			}
		}
		done = append(done, e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(append(errs, i.journal.Forget(done...))...)
}
