// SPDX-License-Identifier: Apache-2.0

// Package perm keeps the owner, group and mode of paths outside the layer, as
// chown(1) and chmod(1) set them, and puts the originals back.
//
// The paths may lie where users write. A file is opened by package safepath,
// without links of users, and looked at and changed through that descriptor; see
// guards for what is refused. A program that changes its owner loses
// set-user-ID, set-group-ID and file capabilities unless the rule's own mode
// sets them. Only bootagent/items imports it.
package perm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "perm"

// Item keeps the wanted paths.
type Item struct {
	want    spec.Perm
	state   string // a directory on the state disk
	journal item.Journal
	log     func(format string, args ...any)
	makes   item.Makes
	found   int // paths at the last check, with those that cannot be
}

// New returns the item for want, nil for nothing. Originals of files on the disk that
// state lies on live as long as that disk, if it has a scope; other files go
// with the root.
func New(want *spec.Perm, state string, j item.Journal, log func(format string, args ...any)) *Item {
	i := &Item{state: state, journal: j, log: log}
	if want != nil {
		i.want = *want
	}
	return i
}

// WithAccounts has paths wait for owners that come in the same run.
func (i *Item) WithAccounts(makes item.Makes) *Item {
	i.makes = makes
	return i
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item: patterns count by what they matched.
func (i *Item) Wanted() int { return i.found }

// attr holds a file's permissions.
type attr struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // the lower twelve bits
	Ino  uint64 `json:"ino,omitempty"`
	Born int64  `json:"born,omitempty"` // see born; with Ino it names one file
}

func (a attr) String() string { return fmt.Sprintf("%04o %d:%d", a.Mode, a.UID, a.GID) }

// is compares what chown(2) and chmod(2) set.
func (a attr) is(b attr) bool { return a.UID == b.UID && a.GID == b.GID && a.Mode == b.Mode }

// same reports whether both are of one file.
func (a attr) same(b attr) bool {
	return a.Ino == b.Ino && (a.Born == b.Born || a.Born == 0 || b.Born == 0)
}

// applied holds the permissions that the item last set; Attr.Ino is 0 until it is known to be done.
type applied struct {
	Attr attr   `json:"attr"`
	Rule string `json:"rule"`
}

// wish holds what is wanted of one file: rules in the author's order.
type wish struct {
	path  string
	rules []rule
	text  string
}

// wishes expands the patterns; drift is for what cannot be.
func (i *Item) wishes(walk *safepath.Walk) (list []*wish, drift []spec.Drift) {
	byPath := map[string]*wish{}
	for _, p := range i.want.Paths {
		stop := func(action, format string, args ...any) {
			drift = append(drift, spec.Drift{Item: Name, Key: p.Path, To: describe(p), Action: action, Reason: fmt.Sprintf(format, args...)})
		}
		r, err := i.parseRule(p)
		if errors.Is(err, item.ErrNotYet) {
			stop(spec.ActionDefer, "%v", err)
			continue
		}
		if err != nil {
			stop(spec.ActionRefuse, "%v", err)
			continue
		}
		files, err := walk.Glob(p.Path) // sorted; a plain path is its own only match
		if err != nil {
			stop(spec.ActionRefuse, "expand the pattern: %v", err)
			continue
		}
		if len(files) == 0 && !i.want.IgnoreMissing {
			stop(spec.ActionDefer, "there is no such path yet")
		}
		for _, path := range files {
			if rules.PermAt(p, path) != nil {
				continue // a pattern matches what is caisson's own
			}
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

// to returns the wanted permissions of a file from its present ones.
func (w *wish) to(f file) attr {
	now := f.attr
	for _, r := range w.rules {
		now = r.apply(now, f)
	}
	return now
}

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var walk safepath.Walk
	defer walk.Close()
	list, drift := i.wishes(&walk)
	i.found = len(list) + len(drift)
	entries := item.ByKey(i.journal.Entries(Name))
	wanted := map[string]bool{}
	for _, w := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.path] = true
		d := spec.Drift{Item: Name, Key: w.path, Action: spec.ActionChange}
		f, err := open(&walk, w.path)
		if err != nil {
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
			drift = append(drift, d)
			continue
		}
		to := w.to(f)
		f.close()
		if err := guards.Run(step{&walk, f.attr, f.attr, to}); err != nil {
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
			drift = append(drift, d)
			continue
		}
		d.From, d.To = f.attr.String(), to.String()
		if !f.attr.is(to) && !i.once(entries[w.path], w) {
			drift = append(drift, d)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, e := range item.Unwanted(i.journal, Name, wanted) {
		drift = append(drift, i.leaving(&walk, e))
	}
	return drift, nil
}

// leaving returns the drift of a file that no rule names any more.
func (i *Item) leaving(walk *safepath.Walk, e item.Entry) spec.Drift {
	d := spec.Drift{Item: Name, Key: e.Key, Action: spec.ActionRemove}
	f, err := open(walk, e.Key)
	if err != nil {
		d.Reason = fmt.Sprintf("nothing is put back: %v", err)
		return d
	}
	defer f.close()
	to, why := i.original(walk, f, e)
	if why != "" {
		d.Reason = fmt.Sprintf("it %s: its permissions are left as they are", why)
	}
	d.From, d.To = f.attr.String(), to.String()
	return d
}

// once reports whether the policy is to set a file one time only and that was done.
func (i *Item) once(e item.Entry, w *wish) bool {
	if i.want.Rerun != "never" && i.want.Rerun != "once_successfully" && i.want.Interval >= 0 {
		return false
	}
	did := item.Did[applied](e)
	return did.Attr.Ino != 0 && did.Rule == w.text
}

// Apply implements item.Item. The journal learns the originals before, and the
// inodes after: an overlay gives a file a new one when it is first changed.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	due := item.Due(drift, spec.ActionChange)
	var walk safepath.Walk
	defer walk.Close()
	var errs []error
	var entries []item.Entry
	todo := map[string]change{}
	list, _ := i.wishes(&walk)
	had := item.ByKey(i.journal.Entries(Name))
	for _, w := range list {
		if !due[w.path] {
			continue
		}
		f, err := open(&walk, w.path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		f.close()
		to := w.to(f)
		to.Ino, to.Born = 0, 0
		todo[w.path] = change{f.attr, to}
		entries = append(entries, item.Entry{Item: Name, Key: w.path, Prior: item.Raw(f.attr),
			Applied: item.Raw(applied{to, w.text}), Scope: i.scope(f.dev)})
	}
	if len(entries) == 0 {
		return errors.Join(errs...)
	}
	if err := item.Record(ctx, i.journal, entries...); err != nil {
		return err
	}
	var done, undone []item.Entry
	for _, e := range entries {
		now, err := set(ctx, &walk, e.Key, todo[e.Key])
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
		did := item.Did[applied](e)
		did.Attr.Ino, did.Attr.Born = now.Ino, now.Born
		e.Applied = item.Raw(did)
		done = append(done, e)
	}
	return errors.Join(append(errs, i.journal.Record(done...), i.journal.Forget(undone...))...)
}

// change holds a file's permissions when it was looked at, and the wanted ones.
type change struct{ from, to attr }

// set opens path again and changes it, if it still is the file that was looked at.
func set(ctx context.Context, walk *safepath.Walk, path string, c change) (attr, error) {
	f, err := open(walk, path)
	if err != nil {
		return attr{}, err
	}
	defer f.close()
	if err := guards.Run(step{walk, c.from, f.attr, c.to}); err != nil {
		return attr{}, err
	}
	return f.set(ctx, c.to)
}

// scope is the disk's for files beside the state directory.
func (i *Item) scope(dev uint64) item.Scope {
	var st unix.Stat_t
	if i.state != "" && unix.Stat(i.state, &st) == nil && st.Dev == dev {
		return item.Disk
	}
	return item.Root
}

// rule is one entry of the config with its names resolved; -1 leaves an id alone.
type rule struct {
	uid, gid int64
	mode     rules.Mode
}

// apply returns the permissions that the rule gives a file whose present ones are a.
func (r rule) apply(a attr, f file) attr {
	was := a
	if r.uid >= 0 {
		a.UID = uint32(r.uid)
	}
	if r.gid >= 0 {
		a.GID = uint32(r.gid)
	}
	if a.UID != was.UID || a.GID != was.GID {
		a.Mode = f.without(a.Mode)
	}
	a.Mode = r.mode.Apply(a.Mode, f.dir)
	return a
}

func (i *Item) parseRule(p spec.PermPath) (rule, error) {
	r := rule{uid: -1, gid: -1}
	err := rules.PermPath(p)
	if err != nil {
		return r, err
	}
	if r.uid, err = i.id(p.Owner, "passwd"); err != nil {
		return r, err
	}
	if r.gid, err = i.id(p.Group, "group"); err != nil {
		return r, err
	}
	r.mode, err = rules.ParseMode(p.Mode)
	return r, err
}

func (i *Item) id(name, database string) (int64, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && n < 1<<32-1 {
		return int64(n), nil
	}
	text, err := item.Number(database, name)
	if err != nil {
		return -1, i.makes.NoAccount("/etc/"+database, name)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return -1, fmt.Errorf("%q has no numeric id in %s: %q", name, database, text)
	}
	return int64(n), nil
}

// setID are the bits that a change of owner takes from a program.
var setID uint32 = unix.S_ISUID | unix.S_ISGID

// step is a change that is about to be made to an open file.
type step struct {
	walk    *safepath.Walk // stands on the way to the file
	from    attr           // what the change was decided on
	now, to attr
}

// guards keep users of the node from choosing what a rule of the site acts on.
var guards = check.List[step]{
	// The owner of a directory puts into it what he likes, also another's file
	// under the name of his own.
	{Name: "way", OK: func(s step) error {
		if dir, uid, found := s.walk.Stranger(s.to.UID); found {
			return fmt.Errorf("%s on the way belongs to user %d, neither root nor the wanted owner %d", dir, uid, s.to.UID)
		}
		return nil
	}},
	// The mode was derived from the file that was there then.
	{Name: "same file", OK: func(s step) error {
		if !s.from.same(s.now) || !s.from.is(s.now) {
			return errors.New("the file was changed or replaced meanwhile")
		}
		return nil
	}},
}
