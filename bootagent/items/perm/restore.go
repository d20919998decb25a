// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/safepath"
)

// Restore implements item.Item.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	var walk safepath.Walk
	defer walk.Close()
	var errs []error
	var done []item.Entry
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.restore(ctx, &walk, e); err != nil {
			errs = append(errs, fmt.Errorf("restore permissions of %s: %w", e.Key, err))
			continue
		}
		done = append(done, e)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(append(errs, i.journal.Forget(done...))...)
}

func (i *Item) restore(ctx context.Context, walk *safepath.Walk, e item.Entry) error {
	was, _ := decode(e)
	f, err := open(walk, e.Key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		i.log("%s is gone: its permissions cannot be put back", e.Key)
		return nil
	case errors.Is(err, safepath.ErrLink):
		i.log("%s is reached by a link since: its permissions are left as they are", e.Key)
		return nil
	case err != nil:
		return err
	}
	defer f.close()
	to, why := i.original(walk, f, e)
	if why != "" {
		i.log("%s %s: its permissions are left as they are", e.Key, why)
		return nil
	}
	if to.Mode != was.Mode {
		i.log("others could write to %s since: set-user-ID and set-group-ID are not put back", e.Key)
	}
	_, err = f.set(ctx, to)
	return err
}

// original returns the permissions that a file gets back, or why it gets none.
func (i *Item) original(walk *safepath.Walk, f file, e item.Entry) (to attr, why string) {
	was, did := decode(e)
	if e.Scope == item.Disk && i.scope(f.dev) != item.Disk { // the disk may have been in other hands
		return f.attr, "is not on the state disk"
	}
	if !f.attr.same(was) && !f.attr.same(did.Attr) && (did.Attr.Ino != 0 || !f.attr.is(did.Attr)) {
		return f.attr, "was replaced since"
	}
	if dir, uid, found := walk.Stranger(was.UID, did.Attr.UID); found {
		return f.attr, fmt.Sprintf("is in %s, which belongs to user %d since", dir, uid)
	}
	if mode := f.without(was.Mode); mode != was.Mode && wasLent(was, did.Attr, f.attr) {
		was.Mode = mode
	}
	return was, ""
}

// wasLent reports whether a user whom the original did not let write may have
// written to the file since: its text is then not what the bits were given to.
var wasLent = func(was, did, now attr) bool {
	for _, a := range []attr{did, now} {
		if a.UID != was.UID || a.GID != was.GID && a.Mode&0o020 != 0 || a.Mode&0o022&^was.Mode != 0 {
			return true
		}
	}
	return false
}

// Adopt returns entries with what is wanted as the original of what is. A path that
// is not there has nothing to put back.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	var walk safepath.Walk
	defer walk.Close()
	list, drift := i.wishes(&walk)
	for _, d := range drift {
		err = errors.Join(err, fmt.Errorf("%s: %s", d.Key, d.Reason))
	}
	for _, w := range list {
		f, openErr := open(&walk, w.path)
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		f.close()
		was := w.to(f)
		entries = append(entries, item.Entry{Item: Name, Key: w.path, Prior: item.Raw(was), Applied: item.Raw(applied{Attr: f.attr}), Scope: i.scope(f.dev)})
	}
	return entries, err
}
