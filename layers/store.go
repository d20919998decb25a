// SPDX-License-Identifier: Apache-2.0

// Package layers keeps a system layer's images on a node and stacks them.
//
// [Store] holds verified blobs under their digest; [Stack] mounts
// images read-only over loop devices and puts an overlayfs on top, see
// loop(4), mount(2) and the kernel's overlayfs document. The package knows
// neither registries and signatures nor the documents in spec: it is given
// digests and paths that somebody else has verified the meaning of.
//
// It runs as root on Linux. Trees become images in layers/image, which the
// agent never links.
package layers

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/ownfiles"
)

// ErrCorrupt is returned where stored bytes are not what their name says.
var ErrCorrupt = errors.New("content does not match its digest")

// Store is a directory of blobs named by digest: sha256/<hex>. A blob is there
// whole or not at all; what is being fetched is beside it as <hex>.partial.
type Store struct{ dir string }

// OpenStore makes dir where it is missing.
func OpenStore(dir string) (*Store, error) {
	for _, d := range []string{dir, filepath.Join(dir, "sha256")} {
		if err := ownfiles.Folder(d); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	return &Store{dir: dir}, nil
}

// Sweep deletes what was left of small blobs whose writing was cut. A partial stays, to
// be resumed. No other process uses the store meanwhile.
func (s *Store) Sweep() error {
	left, _ := filepath.Glob(filepath.Join(s.dir, "sha256", ".*.*")) // the pattern is valid
	for _, name := range left {
		if err := os.Remove(name); err != nil {
			return fmt.Errorf("sweep store: %w", err)
		}
	}
	return nil
}

// Path is where the blob is, or would be. The digest was checked by the caller
// to be valid; anything else gives a path that never exists.
func (s *Store) Path(digest string) string {
	hexes := "invalid"
	if digests.Valid(digest) {
		hexes = digests.Hex(digest)
	}
	return filepath.Join(s.dir, "sha256", hexes)
}

// Partial is the file that a fetch fills and resumes. What lies there and is not
// a file of our own is deleted first.
func (s *Store) Partial(digest string) string {
	name := s.Path(digest) + ".partial"
	f, err := ownfiles.Open(name)
	switch {
	case err == nil:
		_ = f.Close() // only read
	case !errors.Is(err, fs.ErrNotExist): // else another fetch may make it now
		os.Remove(name) // Commit sees what is left
	}
	return name
}

// Has says whether a blob of that size is there. It does not read it.
func (s *Store) Has(digest string, size int64) bool {
	info, err := os.Lstat(s.Path(digest))
	return err == nil && info.Size() == size
}

// Verify reads the blob and compares it with its name. A blob that differs or
// cannot be read is deleted, so that the next fetch brings it again; one that
// cannot be deleted either is still there, see Has, and must not be used.
func (s *Store) Verify(digest string) error {
	err := s.compare(digest)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(err, durable.Remove(s.Path(digest)))
}

func (s *Store) compare(digest string) error {
	f, err := ownfiles.Open(s.Path(digest))
	if err != nil {
		return err
	}
	defer f.Close() // only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read %s: %w", digest, err)
	}
	if got := digests.From(h); got != digest {
		return fmt.Errorf("blob %s: %w", digest, ErrCorrupt)
	}
	return nil
}

// Put stores data, which the caller has verified.
func (s *Store) Put(digest string, data []byte) error {
	if digests.Of(data) != digest {
		return fmt.Errorf("blob %s: %w", digest, ErrCorrupt)
	}
	return durable.WriteFile(s.Path(digest), data, 0o600)
}

// Open opens a blob to read. Nothing says that its content is as its name says.
func (s *Store) Open(digest string) (io.ReadCloser, error) { return ownfiles.Open(s.Path(digest)) }

// Get reads a small blob, at most limit bytes, and verifies it.
func (s *Store) Get(digest string, limit int64) ([]byte, error) {
	f, err := ownfiles.Open(s.Path(digest))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit || digests.Of(data) != digest {
		return nil, fmt.Errorf("blob %s: %w", digest, ErrCorrupt)
	}
	return data, nil
}

// Commit gives a filled partial its name. The caller has hashed what it wrote. What the
// disk did not take goes: the kernel says so once, and would have the pages that are left
// in memory resumed as if they were on it, see fsync(2).
func (s *Store) Commit(digest string) error {
	partial := s.Path(digest) + ".partial"
	f, err := ownfiles.Open(partial)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	if err := f.Sync(); err != nil {
		return errors.Join(fmt.Errorf("fsync %s: %w", digest, err), durable.Remove(partial))
	}
	return durable.Rename(partial, s.Path(digest))
}

// Drop deletes a blob, and what was fetched of it.
func (s *Store) Drop(digest string) error {
	return errors.Join(durable.Remove(s.Path(digest)), durable.Remove(s.Path(digest)+".partial"))
}

// Collect deletes every blob and partial that keep does not name, and returns
// how many bytes that gave back. What is being written beside it stays, see [Store.Sweep].
func (s *Store) Collect(keep map[string]bool) (int64, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "sha256"))
	if err != nil {
		return 0, err
	}
	var freed int64
	for _, e := range entries {
		hexes, _, _ := strings.Cut(e.Name(), ".")
		if hexes == "" || keep[digests.FromHex(hexes)] {
			continue
		}
		if info, err := e.Info(); err == nil {
			freed += info.Size()
		}
		err := os.Remove(filepath.Join(s.dir, "sha256", e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a fetch renamed it meanwhile
			return freed, err
		}
	}
	return freed, durable.SyncDir(filepath.Join(s.dir, "sha256"))
}
