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
	was, did := decode(e)
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
	if e.Scope == item.Disk && i.scope(f.dev) != item.Disk { // the disk may have been in other hands
		i.log("%s is not on the state disk: its permissions are left as they are", e.Key)
		return nil
	}
	if !f.attr.same(was) && !f.attr.same(did.Attr) && (did.Attr.Ino != 0 || !f.attr.is(did.Attr)) {
		i.log("%s was replaced since: its permissions are left as they are", e.Key)
		return nil
	}
	if dir, uid, found := walk.Stranger(was.UID, did.Attr.UID); found {
		i.log("%s belongs to user %d since: the permissions of %s are left as they are", dir, uid, e.Key)
		return nil
	}
	if mode := f.without(was.Mode); mode != was.Mode && wasLent(was, did.Attr, f.attr) {
		i.log("others could write to %s since: set-user-ID and set-group-ID are not put back", e.Key)
		was.Mode = mode
	}
	_, err = f.set(ctx, was)
	return err
}

// wasLent reports whether somebody whom the original did not let write may have
// written to the file since: its text is then not what the bits were given to.
var wasLent = func(was, did, now attr) bool {
	for _, a := range []attr{did, now} {
		if a.UID != was.UID || a.GID != was.GID && a.Mode&0o020 != 0 || a.Mode&0o022&^was.Mode != 0 {
			return true
		}
	}
	return false
}
