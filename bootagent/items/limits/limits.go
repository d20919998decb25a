// SPDX-License-Identifier: Apache-2.0

// Package limits keeps one file a limit in /etc/security/limits.d, as
// limits.conf(5) and pam_limits(8) read them.
//
// It touches only files that carry caisson's prefix. A limit acts on new PAM
// sessions: not on running ones, and not on systemd services, which take
// LimitNOFILE= and its like. Only bootagent/items imports it.
package limits

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Name is the kind.
const Name = "limits"

// Item keeps the wanted files.
type Item struct {
	want    []spec.Limit
	dir     string
	journal item.Journal
	log     func(format string, args ...any)
}

// New returns the item for want, sorted by id; dir is /etc/security/limits.d.
func New(want []spec.Limit, dir string, j item.Journal, log func(format string, args ...any)) *Item {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b spec.Limit) int { return strings.Compare(a.ID, b.ID) })
	return &Item{want: want, dir: dir, journal: j, log: log}
}

// Name implements item.Item.
func (*Item) Name() string { return Name }

// Wanted implements item.Item.
func (i *Item) Wanted() int { return len(i.want) }

// prior is a file as it was: Mode 0 is "there was none".
type prior struct {
	Content string      `json:"content,omitempty"`
	Mode    os.FileMode `json:"mode,omitempty"`
	UID     int         `json:"uid,omitempty"`
	GID     int         `json:"gid,omitempty"`
	Made    string      `json:"made,omitempty"` // topmost directory that had to be made
}

func line(l spec.Limit) string {
	return l.Domain + " " + l.Type + " " + l.Item + " " + l.Value
}

func (i *Item) file(id string) string { return filepath.Join(i.dir, paths.Prefix+id+".conf") }

// Check implements item.Item.
func (i *Item) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	wanted := map[string]bool{}
	for _, l := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d := spec.Drift{Item: Name, Key: l.ID, To: line(l), Action: spec.ActionAdd}
		if err := rules.Limit(l); err != nil {
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
			drift = append(drift, d)
			continue
		}
		if wanted[l.ID] {
			d.Action, d.Reason = spec.ActionRefuse, "the id is used twice"
			drift = append(drift, d)
			continue
		}
		wanted[l.ID] = true
		now, err := i.read(l.ID)
		if err != nil {
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
			drift = append(drift, d)
			continue
		}
		if now.Mode != 0 {
			d.Action, d.From = spec.ActionChange, strings.TrimSuffix(now.Content, "\n")
		}
		if now.Content != line(l)+"\n" {
			drift = append(drift, d)
		}
	}
	for _, e := range i.journal.Entries(Name) {
		if wanted[e.Key] {
			continue
		}
		now, _ := i.read(e.Key) // shown only: what cannot be read is shown as nothing
		drift = append(drift, spec.Drift{Item: Name, Key: e.Key, Action: spec.ActionRemove,
			From: strings.TrimSuffix(now.Content, "\n"), To: strings.TrimSuffix(decode(e).Content, "\n")})
	}
	return drift, nil
}

// maxFile caps a file that is kept as an original.
const maxFile = 256 << 10

// read is the file of an id, or the zero prior when there is none.
func (i *Item) read(id string) (prior, error) {
	name := i.file(id)
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return prior{}, nil
	}
	if err != nil {
		return prior{}, err
	}
	if !info.Mode().IsRegular() {
		return prior{}, fmt.Errorf("%s is there and is not a regular file", name)
	}
	if info.Size() > maxFile {
		return prior{}, fmt.Errorf("%s is there and is larger than %d bytes", name, maxFile)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return prior{}, err
	}
	p := prior{Content: string(data), Mode: info.Mode()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		p.UID, p.GID = int(st.Uid), int(st.Gid)
	}
	return p, nil
}

// Apply implements item.Item.
func (i *Item) Apply(ctx context.Context, drift []spec.Drift) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var entries []item.Entry
	var todo []spec.Drift
	errs := []error{i.sweep()}
	made := missing(i.dir)
	for _, e := range i.journal.Entries(Name) {
		made = cmp.Or(decode(e).Made, made) // whichever file leaves last removes the directories
	}
	for _, d := range drift {
		if d.Action != spec.ActionAdd && d.Action != spec.ActionChange {
			continue
		}
		was, err := i.read(d.Key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		was.Made = made
		todo = append(todo, d)
		entries = append(entries, item.Entry{Item: Name, Key: d.Key, Prior: item.Raw(was), Applied: item.Raw(d.To), Scope: item.Root})
	}
	if len(todo) == 0 {
		return errors.Join(errs...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := i.journal.Record(entries...); err != nil {
		return err
	}
	for _, d := range todo {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.makeDir(); err != nil {
			return err
		}
		if err := durable.WriteFile(i.file(d.Key), []byte(d.To+"\n"), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("write limit %q: %w", d.Key, err))
		}
		if later := i.overridden(d); later != "" {
			i.log("limit %q has no effect: %s is read later and sets the same", d.Key, later)
		}
	}
	return errors.Join(errs...)
}

// makeDir makes limits.d, which PAM reads as any user, whatever the umask is.
func (i *Item) makeDir() error {
	if _, err := os.Stat(i.dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(i.dir, 0o755)
}

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	errs := []error{i.sweep()}
	var done []item.Entry
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.putBack(e.Key, decode(e)); err != nil {
			errs = append(errs, fmt.Errorf("restore limit %q: %w", e.Key, err))
			continue
		}
		done = append(done, e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(append(errs, i.journal.Forget(done...))...)
}

// sweep removes the temporary files of a process that was killed as it wrote.
func (i *Item) sweep() error {
	stale, _ := filepath.Glob(filepath.Join(i.dir, "."+paths.Prefix+"*.conf.*")) // the pattern is ours, so never malformed
	var errs []error
	for _, name := range stale {
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}

func (i *Item) putBack(id string, was prior) error {
	name := i.file(id)
	if was.Mode == 0 {
		if _, err := os.Stat(i.dir); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err := durable.Remove(name); err != nil {
			return err
		}
		unmake(i.dir, was.Made)
		return nil
	}
	if err := durable.WriteFile(name, []byte(was.Content), was.Mode.Perm()); err != nil {
		return err
	}
	if err := os.Lchown(name, was.UID, was.GID); err != nil {
		return err
	}
	return os.Chmod(name, was.Mode)
}

func decode(e item.Entry) prior {
	var p prior
	_ = json.Unmarshal(e.Prior, &p) // the journal's checksum vouches for it
	return p
}

// missing is the topmost directory of dir that is not there, "" when all are.
func missing(dir string) string {
	top := ""
	for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		top = dir
	}
	return top
}

// unmake removes dir and its parents up to top, as far as they are empty.
func unmake(dir, top string) {
	for ; top != "" && len(dir) >= len(top); dir = filepath.Dir(dir) {
		if durable.Remove(dir) != nil {
			return
		}
	}
}
