// SPDX-License-Identifier: Apache-2.0

// Package item says what a runtime item is: one kind of setting (sysctl, mounts,
// …) that can be looked at, applied and taken back on a running system.
//
// It holds the interface, the journal entry, the hint, and what several kinds do alike: they ask before each
// line of the journal, and replace files in memory. The kinds are directories beside it, their order is
// the table in package items, and test/itemtest is the suite that each of them passes. Kinds never
// import each other.
package item

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Makes reports whether this run makes an account: a name in /etc/passwd or /etc/group. What
// belongs to it can wait; nil makes none.
type Makes func(database, name string) bool

// NoAccount is the error of a name that a database has not.
func (m Makes) NoAccount(database, name string) error {
	err := fmt.Errorf("%s has no %q", path.Base(database), name)
	if m != nil && m(database, name) {
		err = fmt.Errorf("%w %w, which comes with this generation", err, ErrNotYet)
	}
	return err
}

// Number returns the number that a user of passwd(5) or a group of group(5) has on this system.
func Number(database, name string) (string, error) {
	if database == "group" {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

// ErrNotYet is the error of what another setting makes.
var ErrNotYet = errors.New("yet")

// Item is one kind of runtime setting together with what is wanted of it.
//
// Before every write, to the system or to the journal, an item asks ctx.Err()
// and stops when it is not nil. That makes "cancelled between any two
// writes" a thing that can be tested.
type Item interface {
	// Name is the kind; it is Drift.Item, Entry.Item and ItemStatus.Name.
	Name() string

	// Check compares and writes nothing. Its drift has a stable order and holds
	// also what cannot be done (ActionRefuse), what cannot be done yet
	// (ActionDefer) and what left the config (ActionRemove: Key is the key of
	// the journal's entry). The error is for a check that could not be made.
	Check(ctx context.Context) ([]spec.Drift, error)

	// Wanted is how many settings are wanted, as far as the last check found them.
	Wanted() int

	// Apply does the drift that Check returned: adds, changes and runs. What was
	// there before goes to the journal first. One key's failure does not stop
	// the others; the error joins them all.
	Apply(ctx context.Context, drift []spec.Drift) error

	// Restore puts back what the entries say and forgets those that it put back.
	Restore(ctx context.Context, prior []Entry) error
}

type scriptKey struct{}

// HearScripts has began called for each script that an item waits for under a context, with
// its timeout; what began returns is called when the script is over. Who bounds a run counts
// no time twice that way.
func HearScripts(ctx context.Context, began func(limit time.Duration) (ended func())) context.Context {
	return context.WithValue(ctx, scriptKey{}, began)
}

// BeginScript says that a script begins which is waited for, until ended is called.
func BeginScript(ctx context.Context, limit time.Duration) (ended func()) {
	if began, ok := ctx.Value(scriptKey{}).(func(time.Duration) func()); ok {
		return began(limit)
	}
	return func() {}
}

// Scope says what a changed thing lives and dies with.
type Scope string

// Scopes of an entry.
const (
	Kernel Scope = "kernel" // until the kernel is left: sysctl, ethtool
	Root   Scope = "root"   // until another root is stacked: files, mounts
	Disk   Scope = "disk"   // as long as the state disk's file system
)

// Scopes are the present identities of the three scopes.
type Scopes struct {
	Kernel string // boot id, /proc/sys/kernel/random/boot_id
	Root   string // root id, written when a root is stacked
	Disk   string // UUID of the file system the state directory is on; "" when it is on tmpfs
}

// ID is the present identity of a scope, "" for one that there is not.
func (s Scopes) ID(scope Scope) string {
	switch scope {
	case Kernel:
		return s.Kernel
	case Root:
		return s.Root
	case Disk:
		return s.Disk
	}
	return ""
}

// Sources of hints, as status names them.
const (
	BPF       = "bpf"       // writes of kernel parameters, see package bpf
	DBus      = "dbus"      // properties of units of systemd
	Ethtool   = "ethtool"   // the monitor group of the kernel's ethtool netlink
	Inotify   = "inotify"   // files that caisson writes or keeps, see inotify(7)
	Mountinfo = "mountinfo" // the mounts of the node, see proc_pid_mountinfo(5)
	Rtnetlink = "rtnetlink" // network interfaces, see rtnetlink(7)
	Swaps     = "swaps"     // swap space in use, see proc_swaps(5)
	Uevent    = "uevent"    // devices and modules that come and go
)

// Hint says what tells of changes of a kind.
type Hint struct {
	Kind    string
	Sources []string
	Devices []string // subsystems of the kernel whose events are hints
	Places  func(*spec.Items) []Place
}

// Place is a file whose change is a hint.
type Place struct {
	Path   string
	Itself bool // also what happens to the file without its directory's knowing: sysfs, and other names of it
}

// Entry holds the value of one key of an item before caisson first changed it.
type Entry struct {
	Item    string          `json:"item"`
	Key     string          `json:"key"`
	Prior   json.RawMessage `json:"prior"`             // the original, in the item's own form
	Applied json.RawMessage `json:"applied,omitempty"` // what the item last set, in its own form
	Scope   Scope           `json:"scope"`
	ScopeID string          `json:"scopeId"` // filled in by the journal
}

// Journal remembers originals. It is durable when Record and Forget return.
type Journal interface {
	// Record adds entries with one fsync. For an (Item, Key) that it holds
	// already the first Prior is kept and Applied is replaced.
	Record(entries ...Entry) error
	// Entries are those of one item, sorted by key.
	Entries(item string) []Entry
	// Forget drops entries, by Item and Key, with one fsync.
	Forget(entries ...Entry) error
	// Replace drops entries of it and adds those that moved to another key, with one fsync. An
	// entry that it holds by such a key, and does not drop, is kept.
	Replace(old, moved []Entry) error
}

// Record is [Journal.Record], unless the context has ended.
func Record(ctx context.Context, j Journal, entries ...Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.Record(entries...)
}

// Forget is [Journal.Forget], unless the context has ended.
func Forget(ctx context.Context, j Journal, entries ...Entry) error {
	return Replace(ctx, j, entries, nil)
}

// Replace is [Journal.Replace], unless the context has ended.
func Replace(ctx context.Context, j Journal, old, moved []Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.Replace(old, moved)
}

// Part is the part of a journal that holds the keys of which In is true, for an
// item that is made of others.
type Part struct {
	Journal
	In func(key string) bool
}

// Entries implements Journal.
func (p Part) Entries(item string) []Entry {
	return slices.DeleteFunc(p.Journal.Entries(item), func(e Entry) bool { return !p.In(e.Key) })
}

// Raw is v as JSON, for Prior and Applied. It is for plain structs and strings,
// which always marshal.
func Raw(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("item: " + err.Error())
	}
	return raw
}

// Was returns the Prior of an entry, as the item has it.
func Was[P any](e Entry) (was P) {
	_ = json.Unmarshal(e.Prior, &was) // the journal's checksum covers it
	return was
}

// Did returns the Applied of an entry, as the item has it.
func Did[A any](e Entry) (did A) {
	_ = json.Unmarshal(e.Applied, &did) // the journal's checksum covers it
	return did
}

// Unwanted returns the entries of one item whose keys are not wanted.
func Unwanted(j Journal, item string, wanted map[string]bool) []Entry {
	return slices.DeleteFunc(j.Entries(item), func(e Entry) bool { return wanted[e.Key] })
}

// Due returns the keys of the drift that is to be done by one of the actions.
func Due(drift []spec.Drift, actions ...string) map[string]bool {
	due := map[string]bool{}
	for _, d := range drift {
		if slices.Contains(actions, d.Action) {
			due[d.Key] = true
		}
	}
	return due
}

// NoKey is why a secret is not there that was not sealed to this node.
const NoKey = "no key"

// Lacks says why one of some secrets is not there, "" where all are: lacks says it of each, and nil
// of all.
func Lacks(names []string, lacks func(name string) string) (why string) {
	for _, name := range names {
		if why = NoKey; lacks != nil {
			why = lacks(name)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// Renew replaces a file that is in memory alone. Its owner comes before its mode: no other user
// reads it meanwhile. A negative number keeps an owner.
func Renew(name string, data []byte, mode fs.FileMode, uid, gid int) error {
	next := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return os.Rename(next, name)
}

// ByKey returns entries of one item by their keys.
func ByKey(entries []Entry) map[string]Entry {
	return plain.Map(entries, func(e Entry) (string, Entry) { return e.Key, e })
}

// Keys returns the keys of entries.
func Keys(entries []Entry) map[string]bool {
	return plain.Map(entries, func(e Entry) (string, bool) { return e.Key, true })
}

// Missing returns the topmost directory of a path that is not there, "" when all are.
func Missing(path string) (top string) {
	for ; path != "/" && path != "."; path = filepath.Dir(path) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		top = path
	}
	return top
}
