// SPDX-License-Identifier: Apache-2.0

// A limit is one file in /etc/security/limits.d, as limits.conf(5) and pam_limits(8) read them.
//
// Only files that carry caisson's prefix are touched. A limit acts on new PAM
// sessions: not on running ones, and not on systemd services, which take
// LimitNOFILE= and its like.

package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// LimitsName is the kind.
const LimitsName = "limits"

// Limits keeps the wanted files.
type Limits struct {
	want    []spec.Limit
	dir     string
	journal item.Journal
	log     func(format string, args ...any)
	leaving []string
	proc    string // /proc; "" compares with no kernel
}

// NewLimits returns the item for want, sorted by id; dir is /etc/security/limits.d.
func NewLimits(want []spec.Limit, dir string, j item.Journal, log func(format string, args ...any)) *Limits {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b spec.Limit) int { return strings.Compare(a.ID, b.ID) })
	return &Limits{want: want, dir: dir, journal: j, log: log}
}

// WithLeaving names files that go with this run, and override nothing for long.
func (i *Limits) WithLeaving(files []string) *Limits {
	i.leaving = files
	return i
}

// WithKernel has limits of open files compared with what the kernel at proc grants.
func (i *Limits) WithKernel(proc string) *Limits {
	i.proc = proc
	return i
}

// Name implements item.Item.
func (*Limits) Name() string { return LimitsName }

// Wanted implements item.Item.
func (i *Limits) Wanted() int { return len(i.want) }

// limitPrior is a file as it was: Mode 0 is "there was none".
type limitPrior struct {
	Content string      `json:"content,omitempty"`
	Mode    os.FileMode `json:"mode,omitempty"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	Made    string      `json:"made,omitempty"` // topmost directory that had to be made
}

func limitFile(id string) string { return paths.Prefix + id + ".conf" }

func (i *Limits) file(id string) string { return filepath.Join(i.dir, limitFile(id)) }

// Check implements item.Item.
func (i *Limits) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	var w safepath.Walk
	defer w.Close()
	wanted := map[string]bool{}
	for _, l := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := spec.Drift{Item: LimitsName, Key: l.ID, To: strings.Join([]string{l.Domain, l.Type, l.Item, l.Value}, " "), Action: spec.ActionAdd}
		now, err := limitPrior{}, rules.Limit(l)
		switch {
		case err != nil:
		case wanted[l.ID]:
			err = errors.New("the id is used twice")
		default:
			wanted[l.ID] = true
			now, err = i.read(&w, l.ID)
		}
		switch most := i.granted(l); {
		case err != nil:
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
		case most != "": // PAM would let no user in; a kernel parameter of this run may raise it
			d.Action, d.Reason = spec.ActionDefer, "the kernel grants no more open files than fs.nr_open, which is "+most
		case now.Content == d.To+"\n":
			continue
		case now.Mode != 0:
			d.Action, d.From = spec.ActionChange, strings.TrimSuffix(now.Content, "\n")
		}
		drift = append(drift, d)
	}
	for _, e := range item.Unwanted(i.journal, LimitsName, wanted) {
		now, _ := i.read(&w, e.Key) // shown only: what cannot be read is shown as nothing
		drift = append(drift, spec.Drift{Item: LimitsName, Key: e.Key, Action: spec.ActionRemove,
			From: strings.TrimSuffix(now.Content, "\n"), To: strings.TrimSuffix(item.Was[limitPrior](e).Content, "\n")})
	}
	return drift, nil
}

// maxFile caps a file that is kept as an original.
const maxFile = 256 << 10

// read is the file of an id, or the zero prior when there is none.
func (i *Limits) read(w *safepath.Walk, id string) (limitPrior, error) {
	dir, err := w.Hold(i.dir)
	if err != nil {
		return limitPrior{}, fault.But(err, fs.ErrNotExist)
	}
	defer dir.Close() // only read
	t, err := dir.Look(limitFile(id), maxFile)
	switch {
	case err != nil || t.Mode == 0:
		return limitPrior{}, err
	case t.Type() != unix.S_IFREG:
		return limitPrior{}, fmt.Errorf("%s is there and is not a regular file", i.file(id))
	}
	return limitPrior{Content: string(t.Content), Mode: os.FileMode(t.Mode & 0o777), UID: t.UID, GID: t.GID}, nil
}

// put makes the file of an id be p. PAM reads it as any user, whatever the umask is.
func (i *Limits) put(w *safepath.Walk, b *safepath.Batch, id string, p limitPrior) error {
	if err := w.MkdirAll(i.dir); err != nil {
		return err
	}
	dir, err := w.Hold(i.dir)
	if err != nil {
		return err
	}
	defer dir.Close() // only held
	return b.Put(dir, limitFile(id), safepath.Thing{Mode: unix.S_IFREG | uint32(p.Mode.Perm()), UID: p.UID, GID: p.GID,
		Content: []byte(p.Content)})
}

// Apply implements item.Item.
func (i *Limits) Apply(ctx context.Context, drift []spec.Drift) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var entries []item.Entry
	var todo []spec.Drift
	var errs []error
	var w safepath.Walk
	defer w.Close()
	made := item.Missing(i.dir)
	for _, e := range i.journal.Entries(LimitsName) {
		made = cmp.Or(item.Was[limitPrior](e).Made, made) // whichever file leaves last removes the directories
	}
	for _, d := range drift {
		if d.Action != spec.ActionAdd && d.Action != spec.ActionChange {
			continue
		}
		was, err := i.read(&w, d.Key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		was.Made = made
		todo = append(todo, d)
		entries = append(entries, item.Entry{Item: LimitsName, Key: d.Key, Prior: item.Raw(was), Applied: item.Raw(d.To), Scope: item.Root})
	}
	if len(todo) == 0 {
		return errors.Join(errs...)
	}
	if err := item.Record(ctx, i.journal, entries...); err != nil {
		return err
	}
	var b safepath.Batch
	for _, d := range todo {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, b.Sync())
		}
		err := i.put(&w, &b, d.Key, limitPrior{Content: d.To + "\n", Mode: 0o644, UID: os.Geteuid(), GID: os.Getegid()})
		errs = append(errs, fault.In(err, "write limit %q", d.Key))
	}
	i.warn(todo)
	return errors.Join(append(errs, b.Sync())...)
}

// Restore implements item.Item.
func (i *Limits) Restore(ctx context.Context, entries []item.Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var errs []error
	var done []item.Entry
	var w safepath.Walk
	defer w.Close()
	var b safepath.Batch
	made := ""
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, b.Sync())
		}
		was := item.Was[limitPrior](e)
		if err := i.putBack(&w, &b, e.Key, was); err != nil {
			errs = append(errs, fmt.Errorf("restore limit %q: %w", e.Key, err))
			continue
		}
		made = cmp.Or(was.Made, made)
		done = append(done, e)
	}
	if err := b.Sync(); err != nil { // else what was given back may be lost, and its original is forgotten
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, i.unmake(&w, made), item.Forget(ctx, i.journal, done...))...)
}

func (i *Limits) putBack(w *safepath.Walk, b *safepath.Batch, id string, was limitPrior) error {
	if was.Mode != 0 {
		return i.put(w, b, id, was)
	}
	dir, err := w.Hold(i.dir)
	if err != nil {
		return fault.But(err, fs.ErrNotExist)
	}
	defer dir.Close() // only held
	return b.Remove(dir, limitFile(id))
}

// unmake removes the directories that were made for the files, from the topmost on, as far
// as they are empty.
func (i *Limits) unmake(w *safepath.Walk, topmost string) error {
	for at := i.dir; topmost != "" && len(at) >= len(topmost); at = filepath.Dir(at) {
		switch err := w.Remove(at); {
		case err == nil, errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, unix.ENOTEMPTY):
			return nil
		default:
			return err
		}
	}
	return nil
}

// granted is fs.nr_open where a limit asks for more, else "".
func (i *Limits) granted(l spec.Limit) string {
	if l.Item != "nofile" || i.proc == "" {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(i.proc, "sys/fs/nr_open"))
	if err != nil {
		return "" // it is not known, as in a container
	}
	most := strings.TrimSpace(string(text))
	if rules.MoreOpenFiles(l, most) {
		return most
	}
	return ""
}
