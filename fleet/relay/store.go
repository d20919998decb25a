// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// store keeps content in files that are named by its digest.
type store struct {
	ctx      context.Context
	from     *registry.Registry
	o        Options
	checking singleflight.Group
	room     sync.Mutex // held while room is made

	mu       sync.Mutex
	arriving map[string]*arrival
	sound    map[string]bool // files that this process has read or written whole
}

// unfinished ends the name of content that arrives.
const unfinished = ".part"

func openStore(ctx context.Context, from *registry.Registry, o Options) (*store, error) {
	if err := durable.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(o.Dir, "*"+unfinished))
	if err != nil {
		return nil, err
	}
	for _, name := range left { // of a process that ended
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	return &store{ctx: ctx, from: from, o: o, arriving: map[string]*arrival{}, sound: map[string]bool{}}, nil
}

func (s *store) path(digest string) string { return filepath.Join(s.o.Dir, digests.Hex(digest)) }

// has reports whether content is here and is what its digest says. A file is read whole before it
// counts for the first time: another process may have left it, and disks rot.
func (s *store) has(digest string) bool {
	s.mu.Lock()
	sound := s.sound[digest]
	s.mu.Unlock()
	if _, err := os.Stat(s.path(digest)); err != nil || sound {
		return err == nil
	}
	_, err, _ := s.checking.Do(digest, func() (any, error) {
		f, err := os.Open(s.path(digest))
		if err != nil {
			return nil, err
		}
		defer f.Close() // only read
		hash := sha256.New()
		if _, err = io.Copy(hash, f); err == nil && digests.From(hash) != digest {
			err = cmp.Or(os.Remove(f.Name()), fmt.Errorf("%s is not what it was, and is fetched again", f.Name()))
		}
		if err != nil {
			s.o.Say("%v", err)
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sound[digest] = true
		return nil, nil
	})
	return err == nil
}

// read returns a manifest that is here and is what its digest says, nil where there is none.
func (s *store) read(digest string) []byte {
	data, err := os.ReadFile(s.path(digest))
	if err != nil || oci.Digest(data) != digest {
		return nil // it is asked for again
	}
	return data
}

// write keeps a manifest.
func (s *store) write(digest string, data []byte) error {
	s.room.Lock()
	defer s.room.Unlock()
	if err := s.makeRoom(int64(len(data))); err != nil {
		return err
	}
	if err := durable.WriteFile(s.path(digest), data, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sound[digest] = true
	return nil
}

// serve gives a blob that is here, or as it arrives. Of one that arrives it gives ranges to the end
// alone: who asks for others gets all of it, as from a registry that has no ranges.
func (s *store) serve(w http.ResponseWriter, req *http.Request, repo, digest string) {
	if s.has(digest) {
		if f, err := os.Open(s.path(digest)); err == nil {
			defer f.Close() // only read
			now := s.o.Now()
			_ = os.Chtimes(f.Name(), now, now) // without it, it leaves earlier, and is fetched again
			s.head(w, digest)
			http.ServeContent(w, req, "", time.Time{}, f)
			return
		}
	}
	a := s.arrival(repo, digest)
	defer s.leave(a)
	size, err := a.begun(req.Context())
	switch {
	case errors.Is(err, oci.ErrNotFound):
		registry.Fail(w, http.StatusNotFound, "BLOB_UNKNOWN", "no such blob")
	case err != nil:
		registry.Fail(w, http.StatusBadGateway, "UNAVAILABLE", "the registry gives no answer")
	default:
		s.head(w, digest)
		a.give(w, req, size)
	}
}

func (s *store) head(w http.ResponseWriter, digest string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("ETag", `"`+digest+`"`)
}

// makeRoom removes what was not asked for longest, until so many bytes more fit.
func (s *store) makeRoom(size int64) error {
	if size > s.o.Most {
		return fmt.Errorf("%d bytes are more than this relay keeps, %d", size, s.o.Most)
	}
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	for _, a := range s.arriving {
		size += a.awaited()
	}
	s.mu.Unlock()
	var files []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // it has just left
			continue
		}
		if err != nil {
			return err
		}
		if !strings.HasSuffix(e.Name(), unfinished) {
			size += info.Size()
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if size <= s.o.Most {
			break
		}
		if err := os.Remove(filepath.Join(s.o.Dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		size -= f.Size()
	}
	return nil
}
