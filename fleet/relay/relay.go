// SPDX-License-Identifier: Apache-2.0

// Package relay serves a registry once more, near machines that ask for the same, as those of a
// rack do.
//
// Content by digest is fetched once, kept in a directory, and given to each who asks while it still
// arrives. What a tag names is asked for again after a while, once for all who wait for it. Where
// the registry gives no answer the relay has none either, so that machines ask their next place:
// an old answer would count as a new one. It verifies digests and no signature. Who takes it over
// can do what any mirror can, and read what its credentials read. cmd/caisson imports it.
package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

// Options say how a registry is relayed.
type Options struct {
	Dir   string        // where content is kept; others write nothing there
	Most  int64         // bytes that it may take; what was not asked for longest leaves first
	Fresh time.Duration // how long the answer for a tag counts
	Say   func(format string, args ...any)
	Now   func() time.Time // nil is time.Now
}

// maxNames is of how many tags the answers are remembered. Beyond that each is asked for anew:
// strangers may ask for any.
const maxNames = 1 << 16

// relay is one registry, and what is known of it.
type relay struct {
	ctx    context.Context // in which content arrives, also when those who asked have gone
	from   oci.Source
	o      Options
	kept   *store
	asking singleflight.Group

	mu    sync.Mutex
	names map[string]named
}

// named holds the answer that a tag led to.
type named struct {
	digest, mediaType, etag string
	missing                 bool
	at                      time.Time
}

// answer is what a tag or digest names, and its manifest.
type answer struct {
	named
	data []byte
}

// Handler relays a registry until ctx ends: manifests and blobs, as nodes ask for them.
func Handler(ctx context.Context, from *registry.Registry, o Options) (http.Handler, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	kept, err := openStore(ctx, from, o)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &relay{ctx: ctx, from: from.Source(), o: o, kept: kept, names: map[string]named{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{}"))
	})
	mux.HandleFunc("GET /v2/", r.serve)
	mux.HandleFunc("/v2/", func(w http.ResponseWriter, _ *http.Request) {
		registry.Fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "a relay is read-only: publish to the registry")
	})
	return mux, nil
}

// asked are the repositories that nodes ask for. Of others, as strangers may name without end, a
// login would be kept for each; and reports are not theirs to read.
var asked = []string{oci.RepoLayer, oci.RepoNode, oci.RepoFleet, oci.RepoService, oci.RepoLoader, oci.RepoRescue}

func (r *relay) serve(w http.ResponseWriter, req *http.Request) {
	repo, kind, what, ok := registry.ParsePath(req.URL.Path)
	ok = ok && slices.Contains(asked, repo)
	switch {
	case ok && kind == "manifests":
		r.manifest(w, req, repo, what)
	case ok && kind == "blobs" && oci.ValidDigest(what):
		r.kept.serve(w, req, repo, what)
	default:
		registry.Fail(w, http.StatusNotFound, "UNSUPPORTED", "a relay has what nodes ask for: ask the registry")
	}
}

// manifest answers from memory where it can. A client that has it is not sent it again.
func (r *relay) manifest(w http.ResponseWriter, req *http.Request, repo, reference string) {
	// All who ask for a tag or digest at once wait for one answer of the registry.
	v, err, _ := r.asking.Do(repo+":"+reference, func() (any, error) { return r.resolve(repo, reference) })
	a := v.(answer)
	switch {
	case err == nil && a.missing, errors.Is(err, oci.ErrNotFound):
		registry.Fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", "no such manifest")
		return
	case err != nil:
		r.o.Say("%s:%s: %v", repo, reference, err)
		registry.Fail(w, http.StatusBadGateway, "UNAVAILABLE", "the registry gives no answer")
		return
	}
	w.Header().Set("Content-Type", a.mediaType)
	w.Header().Set("Docker-Content-Digest", a.digest)
	w.Header().Set("ETag", `"`+a.digest+`"`)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(a.data))
}

// resolve asks the registry for a tag whose answer has become old, and for a manifest that is not
// kept. One that is kept is read before anything is decided, as it may leave at any time.
func (r *relay) resolve(repo, reference string) (answer, error) {
	name := repo + ":" + reference
	r.mu.Lock()
	was, known := r.names[name]
	r.mu.Unlock()
	var data []byte
	if known && !was.missing {
		data = r.kept.read(was.digest)
	}
	there := data != nil
	switch {
	case there && oci.ValidDigest(reference), known && (there || was.missing) && r.o.Now().Sub(was.at) < r.o.Fresh:
		return answer{was, data}, nil
	case !there:
		was.etag = ""
	}
	at := r.o.Now() // before the answer, which may take a while
	resp, err := r.from.Manifest(r.ctx, repo, reference, was.etag)
	now := named{digest: resp.Digest, mediaType: resp.MediaType, etag: resp.ETag, at: at}
	switch {
	case errors.Is(err, oci.ErrNotFound):
		now = named{missing: true, at: at}
	case err != nil:
		return answer{}, err
	case resp.NotModified:
		now = was
		now.at = at
	default:
		data = resp.Data
		if err := r.kept.write(resp.Digest, data); err != nil {
			return answer{}, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known || len(r.names) < maxNames {
		r.names[name] = now
		return answer{now, data}, nil
	}
	for old, n := range r.names { // some that are asked for anew anyway make room
		if at.Sub(n.at) >= r.o.Fresh {
			delete(r.names, old)
		}
	}
	return answer{now, data}, nil
}
