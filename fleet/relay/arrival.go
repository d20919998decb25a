// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/internal/durable"
)

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

// begun returns the size of the blob when the registry has answered.
func (a *arrival) begun(ctx context.Context) (size int64, err error) {
	err = a.await(ctx, func() bool { size = a.size; return size >= 0 })
	return size, err
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
