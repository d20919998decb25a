// SPDX-License-Identifier: Apache-2.0

// Package fetch asks the registry from a process of its own that holds no
// privileges.
//
// A stranger's bytes meet TLS, HTTP, redirects, tokens and manifests first, and
// the agent is root. So each request starts the same program again
// ([Verb]): it reads the credentials, becomes nobody, asks once, and ends. What it
// got goes to its standard output, how it went to its standard error. The agent
// takes both for a registry's word: what comes is capped and hashed again, a
// process that hangs is ended, and what the bytes mean is decided by package trust.
//
// Reports to a fleet's service, and requests for slots, are sent the same way ([Post]).
//
// The loader asks by itself: there is no root yet that a process could be kept
// out of, and whatever it could spoil is verified before it is entered.
package fetch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Verb is the argument with which the program starts itself to ask.
const Verb = "fetch"

// patience is how long a process may take for a manifest. It gives up by itself
// after two minutes; one that does not is ended.
const patience = 150 * time.Second

// Open is [track.Open] with a process for each request. A layout on this machine
// is read by the agent itself: its files may be root's alone.
func Open(b spec.Bootstrap, way track.Way) (oci.Source, error) {
	var list []oci.Source
	for _, place := range append([]string{b.Registry}, b.Mirrors...) {
		at := b
		at.Registry, at.Mirrors = place, nil
		s, err := open(request{Bootstrap: at, Way: way})
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return oci.Places(list...), nil
}

func open(r request) (oci.Source, error) {
	ref, err := oci.ParseRef(r.Bootstrap.Registry)
	if err != nil {
		return nil, err
	}
	if ref.IsLayout() {
		return track.Open(r.Bootstrap, r.Way)
	}
	return &source{ask: r, opened: time.Now()}, nil
}

// source is one registry, asked by processes.
type source struct {
	ask    request
	opened time.Time // when the clock was read
	// program is the program started with Verb; "" is this one.
	program string
}

func (s *source) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := s.ask
	r.Repo, r.Reference, r.ETag = repo, reference, etag
	c, err := s.start(ctx, r)
	if err != nil {
		return oci.Response{}, err
	}
	defer c.Close() // it has ended, unless it said too much
	data, err := io.ReadAll(io.LimitReader(c, oci.MaxManifest+1))
	switch {
	case err != nil:
		return oci.Response{}, err
	case len(data) > oci.MaxManifest:
		return oci.Response{}, refusal.New(refusal.Oversize, "manifest %s has more than %d bytes", reference, oci.MaxManifest)
	case c.said.NotModified && etag != "":
		return oci.Response{ETag: etag, NotModified: true}, nil
	}
	digest := oci.Digest(data)
	if oci.ValidDigest(reference) && digest != reference {
		return oci.Response{}, refusal.New(refusal.Digest, "content of %s is %s", reference, digest)
	}
	return oci.Response{Data: data, MediaType: c.said.MediaType, Digest: digest, ETag: c.said.ETag}, nil
}

// Blob returns once the first byte has come, so that another place can be asked where this one
// does not answer.
func (s *source) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	return s.blob(ctx, request{Repo: repo, Blob: &d, Offset: offset}, d.Size-offset)
}

// Ranges asks for all spans by one process.
func (s *source) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	if err := oci.CheckSpans(d, spans); err != nil {
		return nil, err
	}
	n := int64(0)
	for _, s := range spans {
		n += s.To - s.From
	}
	return s.blob(ctx, request{Repo: repo, Blob: &d, Spans: spans}, n)
}

// blob asks for n bytes of a blob.
func (s *source) blob(ctx context.Context, want request, n int64) (io.ReadCloser, error) {
	r := s.ask
	r.Repo, r.Blob, r.Offset, r.Spans = want.Repo, &oci.Descriptor{Digest: want.Blob.Digest, Size: want.Blob.Size}, want.Offset, want.Spans
	c, err := s.start(ctx, r)
	if err != nil {
		return nil, err
	}
	began := bufio.NewReader(c)
	if n > 0 {
		late := time.AfterFunc(patience, c.kill)
		_, err := began.Peek(1)
		if !late.Stop() {
			err = fmt.Errorf("no answer within %v", patience)
		}
		switch {
		case err == io.EOF: // that it is too short is found out by who reads it
			n = 0
		case err != nil:
			return nil, errors.Join(err, c.Close())
		}
	}
	return limited{io.LimitReader(began, max(0, n)), c}, nil
}

type limited struct {
	io.Reader
	io.Closer
}
