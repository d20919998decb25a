// SPDX-License-Identifier: Apache-2.0

// Package journal keeps the originals of what the items change, on the state
// directory, so that they can be put back also after a crash.
//
// It is one append-only file of lines, `<crc32> <json>`; a batch is one write
// and one fdatasync(2). A line either adds an entry or drops one. Opening the
// file replays it, cuts off a torn tail, drops entries whose scope is gone and
// rewrites the rest when that makes it shorter. A line that cannot be read, or that
// no item would write, is set aside and counted until a person has looked. One
// process at a time has it open for writing; Read is for those who only look. What
// an entry means is known to its item alone. Only bootagent/node opens a journal.
package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/stall"
)

// File is the name of the journal in its directory; Damaged is where lines go that
// cannot be read, for a person to look at.
const (
	File    = "journal"
	Damaged = "journal.damaged"
)

// Journal is an open journal; it is safe for concurrent use by one process.
type Journal struct {
	mu      sync.Mutex
	file    *os.File // nil when it is open for reading
	lock    *os.File // the directory
	size    int64    // of the file
	lines   int
	scopes  item.Scopes
	rules   rules
	entries map[id]item.Entry
	damaged [][]byte // lines that could not be read and are not set aside yet
	set     int      // lines that are set aside
	broken  error
}

type id struct{ item, key string }

var _ item.Journal = (*Journal)(nil)

// Open reads the journal in dir, which is made when missing. The kernel and
// root scopes must be known: without them no entry could be trusted.
func Open(dir string, scopes item.Scopes) (*Journal, error) { return open(dir, scopes, whole) }

func open(dir string, scopes item.Scopes, r rules) (_ *Journal, err error) {
	defer func() {
		err = fault.In(err, "open journal")
	}()
	if err := known(scopes); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close() // err says what failed
		}
	}()
	// What a process left that was killed while it rewrote the file.
	stale, _ := filepath.Glob(filepath.Join(dir, ".journal*.*")) // the pattern is ours, so never malformed
	for _, name := range stale {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	j := &Journal{scopes: scopes, rules: r, lock: lock}
	lines, whole, err := j.load(dir)
	if err != nil {
		return nil, err
	}
	err = j.compact(dir, lines, whole)
	if full := errors.Is(err, unix.ENOSPC) && whole && len(j.damaged) == 0; err != nil && !full { // a file that is whole serves as it is
		return nil, err
	}
	return j, j.openFile()
}

// Read is the journal in dir for looking only: it changes nothing there and
// refuses to record. A directory that is missing is an empty journal.
func Read(dir string, scopes item.Scopes) (*Journal, error) {
	if err := known(scopes); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	j := &Journal{scopes: scopes, rules: whole, broken: errors.New("it is open for reading only")}
	if _, _, err := j.load(dir); err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return j, nil
}

func known(scopes item.Scopes) error {
	if scopes.Kernel == "" || scopes.Root == "" {
		return errors.New("the boot id and the root id must be known")
	}
	return nil
}

// lock holds the directory for this process; a process that ends lets go of it.
func lock(dir string) (*os.File, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch err := stall.Lock(ctx, d, false); {
	case err == nil:
		return d, nil
	case errors.Is(err, context.DeadlineExceeded):
		_ = d.Close() // err says what failed
		return nil, fmt.Errorf("%s is in use by another process", dir)
	default:
		_ = d.Close() // err says what failed
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
}

// patience is how long the directory may be held: a process that was killed as it
// started a script leaves a child that holds on until it has become the script.
const patience = time.Second

// Close lets go of the journal; nothing is lost by not calling it.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	return errors.Join(j.file.Close(), j.lock.Close())
}

// DamagedLines returns how many lines could not be read, now or earlier: until a
// person removes the file [Damaged], originals are missing.
func (j *Journal) DamagedLines() int { return j.set + len(j.damaged) }

// Record implements item.Journal.
func (j *Journal) Record(entries ...item.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := make([]line, 0, len(entries))
	for _, e := range entries {
		if err := j.rules.entry.Run(e); err != nil {
			return fmt.Errorf("record %s: %w", e.Item, err)
		}
		if e.ScopeID = j.scopes.ID(e.Scope); e.ScopeID == "" {
			return fmt.Errorf("record %s %q: there is no %q scope here", e.Item, e.Key, e.Scope)
		}
		if first, ok := j.entries[id{e.Item, e.Key}]; ok {
			if string(first.Applied) == string(e.Applied) {
				continue
			}
			first.Applied = e.Applied
			e = first
		}
		lines = append(lines, line{Add: &e})
	}
	return j.append(lines)
}

// Suppose adds entries to a journal that is open for reading, as if they were
// recorded: what is previewed is then what a run would do. What is there stays.
func (j *Journal) Suppose(entries ...item.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		if _, ok := j.entries[id{e.Item, e.Key}]; !ok {
			j.entries[id{e.Item, e.Key}] = e
		}
	}
}

// Forget implements item.Journal.
func (j *Journal) Forget(entries ...item.Entry) error {
	return j.Replace(entries, nil)
}

// Replace implements item.Journal.
func (j *Journal) Replace(old, moved []item.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := make([]line, 0, len(old)+len(moved))
	free := map[id]bool{}
	for _, e := range old {
		if _, ok := j.entries[id{e.Item, e.Key}]; ok {
			free[id{e.Item, e.Key}] = true
			lines = append(lines, line{Drop: &dropped{e.Item, e.Key}})
		}
	}
	for _, e := range moved {
		if _, held := j.entries[id{e.Item, e.Key}]; !held || free[id{e.Item, e.Key}] {
			lines = append(lines, line{Add: &e})
		}
	}
	return j.append(lines)
}

// Entries implements item.Journal.
func (j *Journal) Entries(name string) []item.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []item.Entry
	for _, e := range j.entries {
		if e.Item == name {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b item.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return found
}

// append makes lines durable, then true. What a failed write left is cut off
// again; where that fails too, or where the disk did not take what was written,
// nothing more is written: the end of the file would be a guess.
func (j *Journal) append(lines []line) error {
	if len(lines) == 0 {
		return nil
	}
	if j.broken != nil {
		return fmt.Errorf("write journal: %w", j.broken)
	}
	data, err := encode(lines)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(data); err != nil {
		if cut := j.file.Truncate(j.size); cut != nil {
			j.broken = fmt.Errorf("an earlier write failed: %w", err)
		}
		return fmt.Errorf("write journal: %w", err)
	}
	if err := unix.Fdatasync(int(j.file.Fd())); err != nil {
		j.broken = fmt.Errorf("an earlier write failed: %w", err)
		return fmt.Errorf("write journal: fdatasync: %w", err)
	}
	for _, l := range lines {
		l.replay(j.entries)
	}
	j.size += int64(len(data))
	j.lines += len(lines)
	if j.size > slack && j.lines > 2*len(j.entries) {
		return j.shrink()
	}
	return nil
}

// slack is how large the file grows before it is rewritten while it is open.
const slack = 1 << 20

// shrink rewrites the file and goes on with the new one.
func (j *Journal) shrink() error {
	if err := j.compact(j.lock.Name(), -1, false); err != nil {
		return fmt.Errorf("compact journal: %w", err) // the old file is whole
	}
	old := j.file
	if err := j.openFile(); err != nil {
		j.broken = fmt.Errorf("it could not be opened again: %w", err)
		return err
	}
	return old.Close()
}

// openFile opens the file to append to.
func (j *Journal) openFile() error {
	f, err := ownfiles.Append(filepath.Join(j.lock.Name(), File))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // err says what failed
		return err
	}
	j.file, j.size, j.lines = f, info.Size(), len(j.entries)
	return nil
}
