// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// apply looks again, records and mounts or remounts one target. What it cannot
// finish it takes back.
func (i *Item) apply(ctx context.Context, w spec.Mount) error {
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return err
	}
	p, err := i.plan(w, t, item.ByKey(i.journal.Entries(Name)))
	if err != nil || p.so && p.other == "" {
		return err
	}
	if p.replace {
		if err := i.Restore(ctx, []item.Entry{p.entry}); err != nil {
			return err
		}
		return i.apply(ctx, w)
	}
	was := prior{Target: p.target, Had: p.so}
	if p.so {
		was.Flags, was.Super = flagsOf(p.now), p.now.super
	} else {
		was.Made = i.made(p.target)
		if was.File, err = p.bindsFile(); err != nil {
			return err
		}
		was.File = was.File && item.Missing(p.target) != ""
	}
	entry := item.Entry{Item: Name, Key: w.Target, Prior: item.Raw(was), Applied: item.Raw(applied{p.source, w}), Scope: item.Root}
	if err := i.journal.Record(entry); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.so {
		return i.remount(ctx, p, t, entry)
	}
	if p.own {
		was = item.Was[prior](p.entry) // a run before this one may have made the directories
	}
	err = i.mount(ctx, p)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if m, ok := i.top(p.target); ok && is(m, w, p.options, p.source, t) {
		err = errors.Join(err, umount(p.target))
	}
	err = errors.Join(err, unmake(was))
	if p.own {
		return err
	}
	return errors.Join(err, i.journal.Forget(entry))
}

// bindsFile reports whether the target is to be a file.
func (p plan) bindsFile() (bool, error) {
	if p.options.bind == 0 {
		return false, nil
	}
	info, err := os.Stat(p.source)
	return err == nil && !info.IsDir(), err
}

func (i *Item) mount(ctx context.Context, p plan) error {
	file, err := p.bindsFile()
	if err != nil {
		return err
	}
	if err := makeTarget(p.target, file); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case p.options.bind != 0:
		err := on(p.source, func(source string) error { return mount(source, p.target, "", p.options.bind, "") })
		if err != nil {
			return fmt.Errorf("bind %s to %s: %w", p.source, p.target, err)
		}
	case p.helper != "":
		return i.byHelper(ctx, p.options.words, "-t", p.want.Type, p.source, p.target)
	default:
		if err := mount(p.source, p.target, p.want.Type, p.options.flags(base), strings.Join(p.options.data, ",")); err != nil {
			return fmt.Errorf("mount %s on %s as %s: %w%s", p.source, p.target, p.want.Type, err, hint(err, p.want.Type))
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return i.finish(p)
}

// finish gives a fresh mount what takes a call of its own.
func (i *Item) finish(p plan) error {
	flags := p.options.bind != 0 && p.options.set|p.options.clear != 0
	if !flags && p.options.propagation == 0 {
		return nil
	}
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return err
	}
	m, there := t.at(p.target)
	if !there || !is(m, p.want, p.options, p.source, t) {
		return fmt.Errorf("%s: %w", p.target, errMoved)
	}
	if flags {
		if err := change(m, "", "", unix.MS_REMOUNT|unix.MS_BIND|p.options.flags(p.base(t)), ""); err != nil {
			return fmt.Errorf("set options %s of %s: %w", strings.Join(redact(p.want.Options), ","), p.target, err)
		}
	}
	if p.options.propagation != 0 {
		if err := change(m, "", "", p.options.propagation, ""); err != nil {
			return fmt.Errorf("set propagation of %s: %w", p.target, err)
		}
	}
	return nil
}

// remount changes options in place. When the kernel takes them but does not
// show them, what was is put back.
func (i *Item) remount(ctx context.Context, p plan, t table, entry item.Entry) error {
	if p.helper != "" {
		return i.byHelper(ctx, append([]string{"remount"}, p.options.words...), p.target)
	}
	bind := p.options.bind & unix.MS_BIND
	err := setOptions(p.now, p.want.Type, p.source, bind|p.options.flags(p.base(t)), p.options.data)
	if err == nil && p.options.propagation != 0 {
		err = change(p.now, "", "", p.options.propagation, "")
	}
	if err == nil {
		now, _ := i.top(p.target)
		word, ok := p.options.holds(now)
		if ok {
			return nil
		}
		err = fmt.Errorf("the kernel does not change %q while it is mounted: unmount it", rules.RedactOption(word))
	}
	back := setOptions(p.now, p.want.Type, p.source, bind|flagsOf(p.now), restorable(p.now.super))
	if !p.own {
		return errors.Join(err, back, i.journal.Forget(entry))
	}
	return errors.Join(err, back, i.journal.Record(p.entry))
}

func setOptions(m mounted, fstype, source string, flags uintptr, data []string) error {
	if data = remountable(fstype, data); flags&unix.MS_BIND != 0 {
		data = nil
	}
	return fault.In(change(m, source, fstype, unix.MS_REMOUNT|flags, strings.Join(data, ",")), "remount %s", m.point)
}

// restorable are the options of mountinfo that can be handed back as data.
func restorable(super []string) []string {
	return slices.DeleteFunc(slices.Clone(super), func(word string) bool {
		_, isFlag := flags[word]
		return isFlag || word == "" || word == "mand"
	})
}

// helperTime is how long mount(8) may take: a helper that finds no server tries for
// minutes, and the next pass tries again.
const helperTime = 45 * time.Second

// byHelper lets mount(8) find the helper of a network or FUSE file system, and ends
// both when they take too long.
func (i *Item) byHelper(ctx context.Context, options []string, args ...string) error {
	target := args[len(args)-1]
	if err := helped(target); err != nil {
		return err
	}
	if len(options) > 0 {
		args = append([]string{"-o", strings.Join(options, ",")}, args...)
	}
	limited, cancel := context.WithTimeout(ctx, i.patience)
	defer cancel()
	cmd := exec.CommandContext(limited, "mount", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a daemon that the helper left may keep its output open
	out, err := cmd.CombinedOutput()
	err = fault.But(err, exec.ErrWaitDelay) // mount(8) itself ended well
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer in %v", i.patience)
	}
	if err != nil {
		return fmt.Errorf("mount %s with options %q: %w: %s", target, redact(options), err, bytes.TrimSpace(out[:min(len(out), 512)]))
	}
	return nil
}

func hint(err error, fstype string) string {
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Sprintf(" (the kernel has no file system %q)", fstype)
	case errors.Is(err, unix.EINVAL):
		return " (an option is unknown to it, or the device holds another file system)"
	}
	return ""
}

// top returns the topmost mount at target.
func (i *Item) top(target string) (mounted, bool) {
	t, err := readTable(filepath.Join(i.proc, "self/mountinfo"))
	if err != nil {
		return mounted{}, false
	}
	return t.at(target)
}

// made is the topmost directory of target that is not ours to keep: it is missing, or
// another mount had it made. Whichever of them leaves last removes it.
func (i *Item) made(target string) string {
	top := item.Missing(target)
	if top == "" {
		return ""
	}
	for _, e := range i.journal.Entries(Name) {
		if p := item.Was[prior](e); p.Made != "" && rules.Within(target, p.Made) && len(p.Made) < len(top) {
			top = p.Made
		}
	}
	return top
}

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
		return setOptions(now, now.fstype, now.source, o.bind&unix.MS_BIND|was.Flags, restorable(was.Super))
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
		return fault.In(err, "unmount %s", target)
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
			if to, err := os.Readlink(link); err == nil && rules.Within(to, dir) {
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
