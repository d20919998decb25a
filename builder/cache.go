// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/layers/image"
)

// The cache directory is 0700, because its trees hold set-uid programs of old
// versions and the layers' password hashes. It has the directories steps (results,
// by the hash of what went in), debs, resolved, apt, keys and bases, the
// file lock, and tmp, which each build empties.

// cacheWait is how long a build waits for others that use its cache: each of them ends, and
// gives it back when it is killed.
var cacheWait = time.Hour

// open takes the cache for this build alone, where need be after another one, and clears what
// a killed build left.
func (b *build) open(ctx context.Context) (release func(), err error) {
	if b.options.CacheDir == "" {
		return nil, errors.New("no cache directory")
	}
	dir, err := filepath.Abs(b.options.CacheDir)
	if err != nil {
		return nil, err
	}
	b.options.CacheDir = dir
	if err := ownDir(dir); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	close := func() { _ = lock.Close() } // nothing was written; this gives the lock back
	if err := b.wait(ctx, lock); err != nil {
		close()
		return nil, fmt.Errorf("cache %s: %w", dir, err)
	}
	b.tmp = filepath.Join(dir, "tmp")
	if err := os.RemoveAll(b.tmp); err != nil {
		close()
		return nil, err
	}
	for _, sub := range []string{"tmp", "steps", "debs", "resolved"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			close()
			return nil, err
		}
	}
	b.store = &apt.Store{Dir: filepath.Join(dir, "debs"), Signed: b.options.Lock != nil, Unsigned: b.options.Unsigned}
	if b.options.Debs != "" {
		b.store.Kept = []string{b.options.Debs}
	}
	return func() {
		_ = os.RemoveAll(b.tmp) // the next build clears what is left
		close()
	}, nil
}

// wait takes the lock of the cache, and says so where another build has it.
func (b *build) wait(ctx context.Context, lock *os.File) error {
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return err
	}
	b.say(Event{Step: "cache", State: "note", Text: "another build is using it: this one goes on when that has ended"})
	wait, end := context.WithTimeout(ctx, cacheWait)
	defer end()
	err := stall.Lock(wait, lock, false)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return otherCache("another build has been using it for %v", cacheWait)
	}
	return err
}

// ownDir makes dir, or takes one that no other user could have filled.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case int(owner) != os.Geteuid():
		return otherCache("%s belongs to UID %d, not to the user who builds (%d)", dir, owner, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return otherCache("%s has mode %04o: others can write to it", dir, info.Mode().Perm())
	case info.Mode().Perm()&0o077 != 0:
		return closeOff(dir)
	}
	return nil
}

// cacheNames are all that a cache has: "git" and "service" are of services, "bisect" and "try" are of these verbs.
var cacheNames = []string{"apt", "bases", "bisect", "debs", "git", "keys", "lock", "resolved", "service", "steps", "tmp", "try"}

// closeOff takes a cache, or an empty directory, from the eyes of others. Anything else, such as
// /var/cache itself, is not ours to close.
func closeOff(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(cacheNames, e.Name()) {
			return otherCache("%s is not a cache: %s is in it, and others can read it", dir, e.Name())
		}
	}
	return os.Chmod(dir, 0o700)
}

// otherCache is an error for a cache that this build cannot have: somebody else uses it, or
// may have filled it.
func otherCache(format string, args ...any) error {
	return cli.WithHint(fmt.Errorf(format, args...), "name a new directory with --cache")
}

// keep moves the finished step in work to dir. All of it is on the disk before it
// has its name, so that no power cut leaves a part that passes for the whole.
func (m *made) keep(work, dir string) error {
	for i, blob := range m.Blobs {
		m.Blobs[i].Identity = image.IdentityOf(filepath.Join(work, blob.File))
	}
	if err := m.write(work); err != nil {
		return err
	}
	if err := syncTree(work); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return durable.Rename(work, dir)
}

// write describes the step in its directory.
func (m *made) write(dir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, madeName), data, 0o600)
}

// madeName describes a step in its directory.
const madeName = "made.json"

// syncTree writes a file system's dirty pages: one call, where a tree would need
// an fsync for each of its files.
func syncTree(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() // only held
	return fault.In(unix.Syncfs(int(d.Fd())), "sync %s", dir)
}

// cached returns what an earlier build made under key, or nil. What is not as it
// was left is removed, to be made again.
func (b *build) cached(step, dir, key string) (*made, error) {
	data, err := os.ReadFile(filepath.Join(dir, madeName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, os.RemoveAll(dir)
	}
	if err != nil {
		return nil, err
	}
	m := &made{dir: dir}
	if json.Unmarshal(data, m) != nil || m.Key != key+m.Facts.numbering() {
		return nil, b.discard(step, dir, "its description is damaged")
	}
	for _, blob := range m.Blobs {
		name := filepath.Join(dir, blob.File)
		if is := image.IdentityOf(name); is != "" && is == blob.Identity {
			continue
		}
		if now, err := describe(dir, blob.File, blob.Title, blob.MediaType); err != nil || now.Digest != blob.Digest {
			return nil, b.discard(step, dir, "its "+blob.Title+" is damaged")
		}
	}
	if err := m.completeRoot(); err != nil {
		return nil, err
	}
	use(filepath.Join(dir, madeName))
	return m, nil
}

// discard removes a damaged step and says so.
func (b *build) discard(step, dir, why string) error {
	b.say(Event{Step: step, State: "note", Text: "the cached step is made again: " + why})
	return os.RemoveAll(dir)
}

// sound looks at the tree of a step before another is made upon it, and makes a
// damaged one again. Its key does not change by that.
func (b *build) sound(ctx context.Context, name string) error {
	m := b.done[name]
	tree := filepath.Join(m.dir, "tree")
	if b.checked[tree] {
		return nil
	}
	if m.Tree != nil {
		ok, err := m.Tree.Holds(tree)
		if err != nil {
			return fmt.Errorf("look at the cached tree of step %s: %w", name, err)
		}
		if ok {
			b.checked[tree] = true
			return nil
		}
	}
	if err := b.discard(name, m.dir, "a file of its tree is damaged"); err != nil {
		return err
	}
	for _, s := range steps {
		if s.name == name {
			if err := b.step(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	b.checked[tree] = true
	return nil
}

// keepDebs copies the package files of this build to the directory that the user
// keeps: mirrors forget old versions.
func (b *build) keepDebs(ctx context.Context) error {
	if b.options.Debs == "" {
		return nil
	}
	if err := os.MkdirAll(b.options.Debs, 0o755); err != nil {
		return err
	}
	for i, list := range [][]apt.Deb{b.chosen.Base, append(slices.Clone(b.chosen.Packages), b.chosen.Tools...)} {
		for _, d := range list {
			to := filepath.Join(b.options.Debs, d.FileName())
			if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if _, err := os.Stat(b.store.Path(d)); err != nil { // its step came from the cache
				if err := b.fetch(ctx, func() *apt.State { return []*apt.State{b.baseApt, b.apt}[i] }, []apt.Deb{d}); err != nil {
					return err
				}
			}
			if err := copyFile(b.store.Path(d), to); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	return durable.Write(to, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// keepUnused is how long the cache keeps what no build asked for.
const keepUnused = 30 * 24 * time.Hour

// use marks a file of the cache as used now.
func use(name string) {
	now := time.Now()
	os.Chtimes(name, now, now) // a cache that forgets too early is only slow
}

// trim removes what no build has used for a while: steps, package files, lists,
// flattened images. It runs after a build, while the cache is still locked.
func (b *build) trim(before time.Time) error {
	for _, l := range [][]string{{"steps/*", "made.json"}, {"debs/*", ""}, {"resolved/*", ""}, {"bases/*", ""}, {"apt/*", "updated"}} {
		found, err := filepath.Glob(filepath.Join(b.options.CacheDir, l[0]))
		if err != nil {
			return err
		}
		for _, name := range found {
			info, err := os.Stat(filepath.Join(name, l[1]))
			if err != nil || !info.ModTime().Before(before) {
				continue
			}
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// SystemCache is kept between the builds of all who may write to it.
const SystemCache = "/var/cache/caisson"

// CacheDir returns the directory that is kept between builds: the named one, the
// system's, or the user's own. Root of a user namespace is a user here.
func CacheDir(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	for _, dir := range []string{SystemCache, filepath.Dir(SystemCache)} {
		if unix.Access(dir, unix.W_OK) == nil {
			return SystemCache, nil
		}
	}
	own, err := os.UserCacheDir()
	return filepath.Join(own, "caisson"), err
}
