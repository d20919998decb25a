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

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
)

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
		if err := durable.WriteFile(name, newIndex().encode(), 0o644); err != nil {
			return fmt.Errorf("make layout: %w", err)
		}
	}
	if err := durable.WriteFile(l.marker(), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644); err != nil {
		return fmt.Errorf("make layout: %w", err)
	}
	return nil
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
