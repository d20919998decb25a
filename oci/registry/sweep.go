// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

// sweep is [Batch.Sweep]. What cannot be read stops it before anything is removed.
func sweep(dir string, grace time.Duration) (freed int64, err error) {
	needed, err := reachable(dir)
	if err != nil {
		return 0, err
	}
	if err := removeUnfinished(dir); err != nil {
		return 0, err
	}
	blobs := filepath.Join(dir, "blobs", "sha256")
	entries, err := os.ReadDir(blobs)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return freed, err
		}
		if needed[digest.FromHex(e.Name())] || time.Since(info.ModTime()) < grace {
			continue
		}
		if err := os.Remove(filepath.Join(blobs, e.Name())); err != nil {
			return freed, err
		}
		freed += info.Size()
	}
	return freed, nil
}

// reachable returns the digests of all blobs that index.json leads to.
func reachable(dir string) (map[string]bool, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		return nil, err
	}
	list, err := oci.ParseLayoutIndex(raw)
	if err != nil {
		return nil, fmt.Errorf("sweep %s: %w", dir, err)
	}
	needed := map[string]bool{}
	var visit func(digest string) error
	visit = func(digest string) error {
		if needed[digest] {
			return nil
		}
		needed[digest] = true
		raw, err := os.ReadFile(filepath.Join(dir, oci.BlobPath(digest)))
		if err != nil {
			return err
		}
		m, err := oci.ParseManifest(raw) // as nearly all are
		if err == nil {
			needed[m.Config.Digest] = true
			for _, d := range m.Layers {
				needed[d.Digest] = true
			}
			return nil
		}
		x, no := oci.ParseIndex(raw)
		if no != nil {
			return fmt.Errorf("sweep %s: %s: %w", dir, digest, err)
		}
		for _, d := range x.Manifests {
			if err := visit(d.Digest); err != nil {
				return err
			}
		}
		return nil
	}
	for _, n := range list {
		if err := visit(n.Digest); err != nil {
			return nil, err
		}
	}
	return needed, nil
}

// removeUnfinished removes what is half written of index and marker, which are written under the
// lock that the caller holds.
func removeUnfinished(dir string) error {
	for _, pattern := range []string{".index.json.*", ".oci-layout.*"} {
		left, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range left {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Batch is many writes as one. On a layout it keeps all other writers out from
// [Registry.Batch] to Close, and nothing is named before Flush; what is not
// flushed never happened. A registry server has no such thing: there every write
// stands by itself and no one is kept out.
type Batch struct {
	layout *layout // nil for a server
}

// Batch begins a batch.
func (r *Registry) Batch() (*Batch, error) {
	l, ok := r.place.(*layout)
	if !ok {
		return &Batch{}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held != nil {
		return nil, errors.New("the layout has a batch open")
	}
	held, err := l.begin()
	if err != nil {
		return nil, err
	}
	l.held = held
	return &Batch{l}, nil
}

// Flush makes all blobs durable with one syncfs(2), then replaces the index that
// names them. Others stay out.
func (b *Batch) Flush() error {
	if b.layout == nil {
		return nil
	}
	b.layout.mu.Lock()
	defer b.layout.mu.Unlock()
	if err := unix.Syncfs(int(b.layout.held.lock.Fd())); err != nil {
		return fmt.Errorf("syncfs %s: %w", b.layout.dir, err)
	}
	return b.layout.write(b.layout.held.index)
}

// Close lets others write again.
func (b *Batch) Close() error {
	if b.layout == nil {
		return nil
	}
	b.layout.mu.Lock()
	defer b.layout.mu.Unlock()
	lock := b.layout.held.lock
	b.layout.held = nil
	return lock.Close()
}

// Sweep removes from a layout the blobs that nothing in its flushed index leads
// to, as a registry server's garbage collection does, and what killed writers
// left. It returns the number of bytes freed. Blobs younger than grace stay: a
// manifest comes after its blobs.
func (b *Batch) Sweep(grace time.Duration) (freed int64, err error) {
	if b.layout == nil {
		return 0, nil
	}
	return sweep(b.layout.dir, grace)
}

// within is the source of a layout. While a batch is open its tags lead where the batch has them lead, as
// a server's do, and index.json is not read once more.
type within struct {
	oci.Source
	layout *layout
}

func (w within) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	if err := oci.CheckName(repo, reference); err != nil {
		return oci.Response{}, err
	}
	if !oci.ValidDigest(reference) {
		switch digest, open := w.layout.batched(repo, reference); {
		case open && digest == "":
			return oci.Response{}, fmt.Errorf("%s:%s: %w", repo, reference, oci.ErrNotFound)
		case open:
			reference = digest
		}
	}
	return w.Source.Manifest(ctx, repo, reference, etag)
}

// batched returns the digest of a tag in the open batch, and whether there is one.
func (l *layout) batched(repo, tag string) (digest string, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return "", false
	}
	return l.held.index.names[repo+":"+tag].Digest, true
}

// locked is an index that is not written yet, and the lock that keeps others out.
type locked struct {
	index *index
	lock  *os.File
}

// protect gives a blob that is there already today's date, so that a sweep leaves
// it until a manifest names it, and reports whether it is still there. A sweep
// holds the lock alone; several may protect at once.
func (l *layout) protect(ctx context.Context, repo string, d oci.Descriptor) (bool, error) {
	if !l.inBatch() {
		lock, err := lockLayout(l.dir, true)
		if err != nil {
			return false, err
		}
		defer lock.Close() // it ends the lock, nothing is written through it
	}
	if there, err := hasBlob(ctx, l, repo, d); err != nil || !there {
		return false, err
	}
	now := time.Now()
	return true, os.Chtimes(l.path(d.Digest), now, now)
}

// make turns the directory into a layout unless it is one. The marker comes last:
// what has it is whole.
func (l *layout) make() error {
	if !l.absent() {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "blobs", "sha256"), 0o755); err != nil {
		return fmt.Errorf("make layout: %w", err)
	}
	lock, err := lockLayout(l.dir, false)
	if err != nil {
		return err
	}
	defer lock.Close() // it ends the lock, nothing is written through it
	if !l.absent() {   // another was faster
		return nil
	}
	name := filepath.Join(l.dir, "index.json")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		if err := durable.Write(name, 0o644, newIndex().write); err != nil {
			return fmt.Errorf("make layout: %w", err)
		}
	}
	return fault.In(durable.WriteFile(l.marker(), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644), "make layout")
}

// lockWithin is how long others may have a layout to themselves: the longest is a sweep,
// or a publish of many nodes.
var lockWithin = 10 * time.Minute

// lockLayout keeps other processes out until the file is closed, or only those that want
// the layout to themselves, where it is shared.
func lockLayout(dir string, shared bool) (*os.File, error) {
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWithin)
	defer cancel()
	if err := stall.Lock(ctx, lock, shared); err != nil {
		_ = lock.Close() // it ends the lock, nothing is written through it
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("another process has held it for %s", lockWithin)
		}
		return nil, fmt.Errorf("lock layout %s: %w", dir, err)
	}
	return lock, nil
}

// writable asks the directory, or the nearest one above it that exists.
func writable(dir string) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir:
			dir = filepath.Dir(dir)
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return &fs.PathError{Op: "write to", Path: dir, Err: unix.ENOTDIR}
		}
		if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
			return &fs.PathError{Op: "write to", Path: dir, Err: err}
		}
		return nil
	}
}

// unmade is the source of a layout that may not be made yet: until then it has
// nothing.
type unmade struct {
	layout *layout
	mu     sync.Mutex
	made   oci.Source
}

func (u *unmade) source() (oci.Source, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.made == nil {
		if u.layout.absent() {
			return nil, oci.ErrNotFound
		}
		var err error
		if u.made, err = pull.Open(oci.Ref{Layout: u.layout.dir}, pull.Options{}); err != nil {
			return nil, err
		}
	}
	return u.made, nil
}

func (u *unmade) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	s, err := u.source()
	if err != nil {
		return oci.Response{}, fmt.Errorf("%s:%s: %w", repo, reference, err)
	}
	return s.Manifest(ctx, repo, reference, etag)
}

func (u *unmade) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	s, err := u.source()
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", d.Digest, err)
	}
	return s.Blob(ctx, repo, d, offset)
}
