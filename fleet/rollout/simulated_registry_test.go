// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/caisson-os/caisson/oci"
)

// served is a registry in memory that notes what the tag of each node leads to: that is what the
// node takes, whatever the index says.
type served struct {
	w     *world
	at    string
	next  http.Handler
	blobs *blobs
	close func()

	mu   sync.Mutex
	puts []put               // of manifests, with which another one becomes the same
	had  map[string][]string // by node: digests of overlays, each other than the one before
	down bool
}

// put is a request that brings a manifest.
type put struct {
	path, kind string
	body       []byte
}

// newRegistry has what the ground has.
func newRegistry(w *world) *served {
	s := &served{w: w, blobs: &blobs{data: maps.Clone(w.ground.blobs)}, had: map[string][]string{}}
	if s.blobs.data == nil {
		s.blobs.data = map[string][]byte{}
	}
	s.next = ggcr.New(ggcr.WithReferrersSupport(true), ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithBlobHandler(s.blobs))
	for _, p := range w.ground.puts {
		req := httptest.NewRequest(http.MethodPut, p.path, bytes.NewReader(p.body))
		req.Header.Set("Content-Type", p.kind)
		s.next.ServeHTTP(httptest.NewRecorder(), req)
	}
	for name, digest := range w.ground.had {
		s.had[name] = []string{digest}
	}
	server := httptest.NewServer(s)
	s.at = strings.TrimPrefix(server.URL, "http://")
	s.close = func() { server.CloseClientConnections(); server.Close() }
	return s
}

// ServeHTTP implements http.Handler.
func (s *served) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	rw.Header().Set("Date", s.w.now().Format(http.TimeFormat)) // a publisher compares its clock with it
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	who, _, _ := strings.Cut(req.UserAgent(), " ")
	fate := s.w.pass(who)
	s.mu.Lock()
	down := s.down && fate != unanswered && who != "observer"
	s.mu.Unlock()
	if down || fate == refused {
		rw.WriteHeader(http.StatusInsufficientStorage) // which no client of a registry tries again
		return
	}
	s.note(req, body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	if fate == unanswered {
		s.next.ServeHTTP(httptest.NewRecorder(), req)
		rw.WriteHeader(http.StatusInsufficientStorage)
		return
	}
	s.next.ServeHTTP(rw, req)
}

// note keeps what is put. An observer sees a node's tag move as it does.
func (s *served) note(req *http.Request, body []byte) {
	_, name, isNode := strings.Cut(req.URL.Path, "/"+oci.RepoNode+"/manifests/")
	if req.Method != http.MethodPut || !strings.Contains(req.URL.Path, "/manifests/") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w.ground.puts == nil {
		s.puts = append(s.puts, put{req.URL.Path, req.Header.Get("Content-Type"), body})
	}
	m, err := oci.ParseManifest(body)
	if !isNode || err != nil || m.ArtifactType != oci.TypeOverlay || oci.ValidDigest(name) {
		return
	}
	digest := m.Layers[0].Digest
	if had := s.had[name]; len(had) == 0 || had[len(had)-1] != digest {
		s.had[name] = append(had, digest)
		s.w.observer.moved(name, digest)
	}
}

// overlay returns what a node would take now, "" while the registry is away.
func (s *served) overlay(node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.had[node]; !s.down && len(had) > 0 {
		return had[len(had)-1]
	}
	return ""
}

func (s *served) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *served) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.down
}

// blobs holds content by digest.
type blobs struct {
	mu   sync.Mutex
	data map[string][]byte
}

func (b *blobs) Get(_ context.Context, _ string, h v1.Hash) (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.data[h.String()]
	if !ok {
		return nil, ggcr.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (b *blobs) Stat(_ context.Context, _ string, h v1.Hash) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.data[h.String()]
	if !ok {
		return 0, ggcr.ErrNotFound
	}
	return int64(len(data)), nil
}

func (b *blobs) Put(_ context.Context, _ string, h v1.Hash, from io.ReadCloser) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data[h.String()] = data
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}
