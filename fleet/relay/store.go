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
	"strconv"
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
	size := int64(0) // known when the registry has answered
	err := a.await(req.Context(), func() bool { size = a.size; return size >= 0 })
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

// arrival is a blob that comes from the registry, and goes to all who asked for it meanwhile.
type arrival struct {
	digest string
	users  int // of file, counted by the store

	mu    sync.Mutex
	file  *os.File
	size  int64 // -1 until the registry has answered
	has   int64
	ended bool
	err   error         // why it came no further
	moved chan struct{} // closed when something of the above has changed
}

// arrival returns the one of a blob, which begins with the first who asks.
func (s *store) arrival(repo, digest string) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.arriving[digest]
	if a == nil {
		a = &arrival{digest: digest, size: -1, users: 1, moved: make(chan struct{})}
		s.arriving[digest] = a
		go s.fetch(a, repo)
	}
	a.users++
	return a
}

// leave closes the file of an arrival that nobody reads any more.
func (s *store) leave(a *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.users--; a.users == 0 && a.file != nil {
		a.file.Close() // it was synced when it was whole, and is removed where it is not
	}
}

// fetch brings a blob. It goes on when those who asked have gone: others will ask.
func (s *store) fetch(a *arrival, repo string) {
	defer s.leave(a)
	err := s.bring(a, repo)
	if err != nil {
		s.o.Say("%s %s: %v", repo, a.digest, err)
	}
	s.mu.Lock()
	delete(s.arriving, a.digest) // first, so that who asks now begins anew, or finds it
	if err == nil {
		s.sound[a.digest] = true
	}
	s.mu.Unlock()
	a.change(func() { a.ended, a.err = true, err })
}

func (s *store) bring(a *arrival, repo string) error {
	content, size, err := s.from.Blob(s.ctx, repo, a.digest)
	if err != nil {
		return err
	}
	defer content.Close() // only read
	f, err := s.begin(a, size)
	if err != nil {
		return err
	}
	if _, err = io.CopyBuffer(a, content, make([]byte, 256<<10)); err == nil {
		err = errors.Join(f.Sync(), durable.Rename(f.Name(), s.path(a.digest)))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // else the next process does
		return err
	}
	s.o.Say("%s %s: %d bytes kept", repo, a.digest, size)
	return nil
}

// begin makes room for a blob, which counts from then on, and its file.
func (s *store) begin(a *arrival, size int64) (*os.File, error) {
	s.room.Lock()
	defer s.room.Unlock()
	if err := s.makeRoom(size); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(s.path(a.digest)+unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		a.change(func() { a.file, a.size = f, size })
	}
	return f, err
}

// Write takes what has come. Who reads the file sees it when it is there.
func (a *arrival) Write(p []byte) (int, error) {
	n, err := a.file.Write(p)
	a.change(func() { a.has += int64(n) })
	return n, err
}

// change is seen by all who wait.
func (a *arrival) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.moved)
	a.moved = make(chan struct{})
}

// await returns when enough is true of what has come, or why that will not be.
func (a *arrival) await(ctx context.Context, enough func() bool) error {
	for {
		a.mu.Lock()
		there, ended, err, moved := enough(), a.ended, a.err, a.moved
		a.mu.Unlock()
		switch {
		case there:
			return nil
		case ended:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// awaited is how many bytes it will take.
func (a *arrival) awaited() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, a.size)
}

// give sends what has come, and goes on as more comes. The last byte waits until the digest is
// right, so that content which is not is an answer that was cut.
func (a *arrival) give(w http.ResponseWriter, req *http.Request, size int64) {
	at, status := int64(0), http.StatusOK
	if from, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(req.Header.Get("Range"), "bytes="), "-"), 10,
		64); err == nil && 0 < from && from < size {
		at, status = from, http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, size-1, size))
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size-at, 10))
	w.WriteHeader(status)
	for at < size && req.Method != http.MethodHead {
		to := at
		err := a.await(req.Context(), func() bool {
			if to = a.has; !a.ended {
				to = min(to, size-1)
			}
			return to > at && (!a.ended || a.err == nil)
		})
		if err != nil {
			panic(http.ErrAbortHandler) // a client sees that this is not all
		}
		n, err := io.Copy(w, io.NewSectionReader(a.file, at, to-at))
		if at += n; err != nil {
			return // the client has gone
		}
	}
}
