// SPDX-License-Identifier: Apache-2.0

// Swap space, on disks and in files, is put to use as swapon(8) does, and taken out of use again,
// by swapon(2) and swapoff(2), and judged by /proc/swaps. Space that is not there
// yet is deferred; space that is in use already is owned only where its priority had
// to be changed. Nothing is made: mkswap(8) is left to the maker of the disk or the file.

package mounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// SwapsName is the kind.
const SwapsName = "swaps"

// Swaps keeps the wanted swap space in use.
type Swaps struct {
	want     []spec.Swap
	proc     string
	dev      string
	patience time.Duration // with the kernel, which reads all that is swapped out
	journal  item.Journal
}

// NewSwaps returns the item for want; proc is /proc, dev is /dev.
func NewSwaps(want []spec.Swap, proc, dev string, j item.Journal) *Swaps {
	want = slices.Clone(want)
	slices.SortStableFunc(want, func(a, b spec.Swap) int { return strings.Compare(a.Device, b.Device) })
	return &Swaps{want: want, proc: proc, dev: dev, patience: time.Minute, journal: j}
}

// Name implements item.Item.
func (*Swaps) Name() string { return SwapsName }

// Wanted implements item.Item.
func (i *Swaps) Wanted() int { return len(i.want) }

// swapPrior is how the space was used before; nil for not at all.
type swapPrior struct {
	Was *usedSwap `json:"was,omitempty"`
}

// appliedSwap is the space as it was put to use.
type appliedSwap struct {
	Path string    `json:"path"`
	Swap spec.Swap `json:"swap"`
}

// swapPlan is wanted space, understood against the present system.
type swapPlan struct {
	path string    // without links
	now  *usedSwap // nil: it is not in use
	own  bool      // the journal has an entry
	so   bool      // it is as wanted
}

func (i *Swaps) plan(w spec.Swap, all []usedSwap, entries map[string]item.Entry) (p swapPlan, err error) {
	if err = rules.Swap(w); err != nil {
		return p, err
	}
	if p.path, err = i.find(w.Device); err != nil {
		return p, err
	}
	e, own := entries[w.Device]
	p.own = own
	if p.now = swapAt(all, p.path); p.now == nil {
		return p, nil
	}
	p.so = w.Priority == nil || *w.Priority == p.now.Priority
	if a := item.Did[appliedSwap](e); own && a.Path == p.path {
		p.so = p.so && a.Swap.Discard == w.Discard && (w.Priority != nil || p.now.Priority < 0)
	}
	return p, nil
}

// describeSwap returns the wanted swap as people read it.
func describeSwap(w spec.Swap) string {
	text := "swap"
	if w.Priority != nil {
		text += fmt.Sprintf(" priority %d", *w.Priority)
	}
	if w.Discard != "" {
		text += " discard " + w.Discard
	}
	return text
}

// Check implements item.Item.
func (i *Swaps) Check(ctx context.Context) ([]spec.Drift, error) {
	var drift []spec.Drift
	entries := item.ByKey(i.journal.Entries(SwapsName))
	if len(i.want)+len(entries) == 0 {
		return nil, ctx.Err()
	}
	all, err := i.read()
	if err != nil {
		return nil, err
	}
	wanted, paths := map[string]bool{}, map[string]string{}
	for _, w := range i.want {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		wanted[w.Device] = true
		d := spec.Drift{Item: SwapsName, Key: w.Device, To: describeSwap(w), Action: spec.ActionAdd}
		p, err := i.plan(w, all, entries)
		if first, twice := paths[p.path]; twice && err == nil {
			err = fmt.Errorf("it is the space of %s", first)
		}
		if p.now != nil {
			d.From, d.Action = p.now.String(), spec.ActionChange
		}
		switch {
		case errors.Is(err, ErrMissingDevice):
			d.Action, d.Reason = spec.ActionDefer, err.Error()
		case err != nil:
			d.Action, d.Reason = spec.ActionRefuse, err.Error()
		default:
			paths[p.path] = w.Device
			if p.so {
				continue
			}
		}
		drift = append(drift, d)
	}
	for _, e := range item.Unwanted(i.journal, SwapsName, wanted) {
		was, a := item.Was[swapPrior](e), item.Did[appliedSwap](e)
		drift = append(drift, spec.Drift{Item: SwapsName, Key: e.Key, From: swapAt(all, a.Path).String(), To: was.Was.String(),
			Action: spec.ActionRemove})
	}
	return drift, nil
}

// Apply implements item.Item.
func (i *Swaps) Apply(ctx context.Context, drift []spec.Drift) error {
	var errs []error
	due := item.Due(drift, spec.ActionAdd, spec.ActionChange)
	for _, w := range i.want {
		if !due[w.Device] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		errs = append(errs, fault.In(i.apply(ctx, w), "use swap space %s", w.Device))
	}
	return errors.Join(errs...)
}

// apply looks again, records, and puts one space to use. A new priority needs it out
// of use for a moment.
func (i *Swaps) apply(ctx context.Context, w spec.Swap) error {
	all, err := i.read()
	if err != nil {
		return err
	}
	entries := item.ByKey(i.journal.Entries(SwapsName))
	before := entries[w.Device]
	p, err := i.plan(w, all, entries)
	if err != nil || p.so {
		return err
	}
	entry := item.Entry{Item: SwapsName, Key: w.Device, Prior: item.Raw(swapPrior{p.now}), Applied: item.Raw(appliedSwap{p.path, w}),
		Scope: item.Kernel}
	if err := i.journal.Record(entry); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.now != nil {
		if err := i.off(ctx, p.path); err != nil {
			return errors.Join(err, i.unrecord(before, entry, p.own))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := swapOn(p.path, w.Priority, w.Discard); err != nil {
		if p.now != nil {
			err = errors.Join(err, swapOn(p.path, p.now.asked(), ""))
		}
		return errors.Join(err, i.unrecord(before, entry, p.own))
	}
	return nil
}

// unrecord makes the journal what it was before a change that was not made.
func (i *Swaps) unrecord(before, entry item.Entry, own bool) error {
	if own {
		return i.journal.Record(before)
	}
	return i.journal.Forget(entry)
}

// Restore implements item.Item.
func (i *Swaps) Restore(ctx context.Context, entries []item.Entry) error {
	var errs []error
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := i.restore(ctx, e); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, fmt.Errorf("take swap space %s out of use: %w", e.Key, err))
			continue
		}
		errs = append(errs, item.Forget(ctx, i.journal, e))
	}
	return errors.Join(errs...)
}

func (i *Swaps) restore(ctx context.Context, e item.Entry) error {
	was, done := item.Was[swapPrior](e), item.Did[appliedSwap](e)
	all, err := i.read()
	if err != nil {
		return err
	}
	now := swapAt(all, done.Path)
	if now != nil && was.Was != nil && now.same(*was.Was) {
		return nil
	}
	if now != nil {
		if err := i.off(ctx, done.Path); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if was.Was == nil {
		return nil
	}
	if _, err := i.find(filepath.Clean(done.Path)); errors.Is(err, ErrMissingDevice) {
		return nil // it went, and its use with it
	}
	return swapOn(done.Path, was.Was.asked(), "")
}

// usedSwap is space in use, a line of /proc/swaps.
type usedSwap struct {
	Path     string `json:"path"`
	Priority int    `json:"priority"` // below 0 the kernel chose it
}

func (u *usedSwap) String() string {
	switch {
	case u == nil:
		return ""
	case u.Priority < 0:
		return "swap"
	}
	return fmt.Sprintf("swap priority %d", u.Priority)
}

// asked is the priority to ask for to have it again.
func (u *usedSwap) asked() *int {
	if u.Priority < 0 {
		return nil
	}
	return &u.Priority
}

// same reports whether both are used alike: which one the kernel chooses depends on
// what else is in use.
func (u *usedSwap) same(other usedSwap) bool {
	return u.Priority == other.Priority || u.Priority < 0 && other.Priority < 0
}

// swapAt is the space in use at a path, by the file and not by its name.
func swapAt(all []usedSwap, path string) *usedSwap {
	info, err := os.Stat(path)
	for n, u := range all {
		if u.Path == path {
			return &all[n]
		}
		if other, failed := os.Stat(u.Path); err == nil && failed == nil && os.SameFile(info, other) {
			return &all[n]
		}
	}
	return nil
}

// maxSwaps caps /proc/swaps: the kernel has room for some thirty.
const maxSwaps = 64 << 10

// read is /proc/swaps. Blanks and such are octal escapes there.
func (i *Swaps) read() ([]usedSwap, error) {
	name := filepath.Join(i.proc, "swaps")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("the kernel has no swap space")
	}
	if err != nil {
		return nil, err
	}
	if len(data) > maxSwaps {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxSwaps)
	}
	return parseSwaps(string(data))
}

func parseSwaps(text string) ([]usedSwap, error) {
	var all []usedSwap
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if n == 0 {
			continue // what the columns are
		}
		fields := strings.Fields(line)
		if len(fields) < 5 {
			return nil, fmt.Errorf("/proc/swaps: line %d has no priority", n+1)
		}
		priority, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			return nil, fmt.Errorf("/proc/swaps: line %d: %w", n+1, err)
		}
		all = append(all, usedSwap{UnescapeDevice(fields[0]), priority})
	}
	return all, nil
}

// find returns the path of a disk or a file, without links that a user could have made.
// What others can read or write is not a place for what the memory holds.
func (i *Swaps) find(name string) (string, error) {
	path, tagged, err := TaggedDevice(i.dev, name)
	if err != nil {
		return "", err
	}
	if !tagged {
		var w safepath.Walk
		defer w.Close()
		if path, err = w.Resolve(name); err != nil {
			return "", err
		}
	}
	var st unix.Stat_t
	err = unix.Lstat(path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return "", MissingDevice(name)
	case err != nil:
		return "", fmt.Errorf("look at %s: %w", path, err)
	}
	return path, usableSwap(path, st)
}

// usableSwap says why memory is not swapped to what stands at a path.
func usableSwap(path string, st unix.Stat_t) error {
	switch kind := st.Mode & unix.S_IFMT; {
	case kind != unix.S_IFREG && kind != unix.S_IFBLK:
		return fmt.Errorf("%s is neither a disk nor a file", path)
	case kind == unix.S_IFREG && (st.Uid != 0 || st.Mode&0o077 != 0):
		return fmt.Errorf("%s is not root's alone: others could read what the memory held; make it 0600", path)
	}
	return nil
}

// Flags of swapon(2).
const (
	prefer       = 0x8000
	discard      = 0x10000
	discardOnce  = 0x20000
	discardPages = 0x40000
)

var discardFlags = map[string]uintptr{"": 0, "all": discard, "once": discard | discardOnce, "pages": discard | discardPages}

// swapOn is swapon(2), by a descriptor: a name could lead elsewhere by now, so what it leads
// to is looked at again.
func swapOn(path string, priority *int, discards string) error {
	flags := discardFlags[discards]
	if priority != nil {
		flags |= prefer | uintptr(*priority)
	}
	return held(path, func(fd int, st unix.Stat_t) error {
		if err := usableSwap(path, st); err != nil {
			return err
		}
		name, _ := unix.BytePtrFromString(safepath.Name(fd)) // it has no NUL
		_, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(name)), flags, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINVAL:
			return fmt.Errorf("%w: no swap signature (see mkswap(8)), or a file with holes, or a file system without swap files", errno)
		case unix.EBUSY:
			return fmt.Errorf("%w: it is mounted, or something else uses it", errno)
		}
		return errno
	})
}

// off is swapoff(2), which reads all that is swapped out back into memory. It cannot
// be cut short: when it takes too long it goes on, and the next look finds its end.
func (i *Swaps) off(ctx context.Context, path string) error {
	var w safepath.Walk
	defer w.Close()
	fd, _, err := w.Open(path)
	if err != nil {
		return err
	}
	name, _ := unix.BytePtrFromString(safepath.Name(fd)) // it has no NUL
	done := make(chan unix.Errno, 1)
	go func() {
		defer unix.Close(fd) // an O_PATH descriptor has nothing to lose
		_, _, errno := unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(name)), 0, 0)
		done <- errno
	}()
	select {
	case errno := <-done:
		switch errno {
		case 0:
			return nil
		case unix.ENOMEM:
			return fmt.Errorf("%w: the memory has no room for what is swapped out there", errno)
		}
		return errno
	case <-time.After(i.patience):
		return fmt.Errorf("what is swapped out is still being read after %v", i.patience)
	case <-ctx.Done():
		return ctx.Err()
	}
}
