// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
)

// Restore implements item.Item: what needs another mount goes before it.
func (i *Item) Restore(ctx context.Context, entries []item.Entry) error {
	entries = ordered(entries, func(e item.Entry) spec.Mount {
		a := item.Did[applied](e)
		a.Mount.Target = e.Key
		return a.Mount
	})
	var errs []error
	for _, e := range slices.Backward(entries) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.restore(e); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, item.Forget(ctx, i.journal, e))
	}
	return errors.Join(errs...)
}

func (i *Item) restore(e item.Entry) error {
	was, done := item.Was[prior](e), item.Did[applied](e)
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return err
	}
	o, err := parseOptions(done.Mount.Options)
	if err != nil {
		return fmt.Errorf("restore %s: %w", was.Target, err)
	}
	now, there := t.at(was.Target)
	switch {
	case !there:
	case !i.ours(now, done, o, t):
		if slices.ContainsFunc(t, func(m mounted) bool { return m.point == was.Target && i.ours(m, done, o, t) }) {
			return fmt.Errorf("unmount %s: something else is mounted over it: %s", was.Target, now)
		}
		return nil // ours went without us; what is there is another's
	case was.Had:
		return setOptions(now, now.fstype, now.source, o.bind, was.Flags, restorable(was.Super))
	default:
		if err := unmount(was.Target, t, i.proc); err != nil {
			return err
		}
	}
	if !was.Had {
		return unmake(was)
	}
	return nil
}

// ours reports whether m is the mount that the entry records. A source that is
// gone by now cannot be compared and is taken at its word.
func (i *Item) ours(m mounted, done applied, o options, t table) bool {
	if _, err := os.Lstat(done.Source); err != nil && filepath.IsAbs(done.Source) {
		return o.bind != 0 || m.source == done.Source || m.source == done.Source+"//deleted"
	}
	return is(m, done.Mount, o, done.Source, t)
}

func unmount(target string, t table, proc string) error {
	err := umount(target)
	if !errors.Is(err, unix.EBUSY) {
		if err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
		return nil
	}
	if below := t.below(target); len(below) > 0 {
		return fmt.Errorf("unmount %s: %w: %s is mounted below it", target, err, below[0])
	}
	if users := users(target, proc); users != "" {
		return fmt.Errorf("unmount %s: %w: used by %s", target, err, users)
	}
	return fmt.Errorf("unmount %s: %w", target, err)
}

// users names a few processes that hold something below dir.
func users(dir, proc string) string {
	var found []string
	pids, _ := filepath.Glob(filepath.Join(proc, "[0-9]*")) // the pattern is valid
	for _, pid := range pids {
		links := []string{pid + "/cwd", pid + "/root", pid + "/exe"}
		fds, _ := filepath.Glob(pid + "/fd/*") // the pattern is valid
		for _, link := range append(links, fds...) {
			if to, err := os.Readlink(link); err == nil && within(to, dir) {
				name, _ := os.ReadFile(pid + "/comm") // it may have ended
				found = append(found, fmt.Sprintf("%s (%s)", filepath.Base(pid), strings.TrimSpace(string(name))))
				break
			}
		}
		if len(found) == 3 {
			break
		}
	}
	return strings.Join(found, ", ")
}

// Adopt returns entries that make the wanted mounts the item's own, as far as they
// are mounted: originally there were none.
func (i *Item) Adopt() (entries []item.Entry, err error) {
	if len(i.want) == 0 {
		return nil, nil
	}
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return nil, err
	}
	for _, w := range i.want {
		p, planErr := i.plan(w, t, nil)
		switch {
		case p.so:
			entries = append(entries, item.Entry{Item: Name, Key: w.Target, Prior: item.Raw(prior{Target: p.target}),
				Applied: item.Raw(applied{p.source, w}), Scope: item.Root})
		case p.now.point != "":
			err = errors.Join(err, fmt.Errorf("something else is mounted on %s: %s", w.Target, p.now))
		case planErr != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", w.Target, planErr))
		}
	}
	return entries, err
}

// Kept adds what the item mounted, as far as it is mounted.
func (i *Item) Kept(items *spec.Items) {
	entries := i.journal.Entries(Name)
	if len(entries) == 0 {
		return
	}
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return // then nothing can be unmounted, either
	}
	for _, e := range entries {
		p, a := item.Was[prior](e), item.Did[applied](e)
		if _, ok := t.at(p.Target); ok {
			items.Mounts = append(items.Mounts, a.Mount)
		}
	}
}
