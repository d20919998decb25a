// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// answer is a registry's answer before its body is read.
type answer struct {
	*http.Response
	what string // tag or digest that was asked for
	oci.Span
	size int64
}

// partial reports whether a part of a blob was asked for.
func (a answer) partial() bool { return a.Span != oci.Span{To: a.size} }

// document is the bytes of a manifest and the tag or digest they came under.
type document struct {
	raw       []byte
	reference string
}

// registryRules say what a registry's answers must be, and where its redirects may
// lead. Tests take some out.
type registryRules struct {
	manifest check.List[answer]
	blob     check.List[answer]
	body     check.List[document] // whatever the bytes say
	redirect check.List[redirect]
}

var wholeRegistry = registryRules{
	manifest: check.List[answer]{
		{Name: "status", OK: wantStatus(http.StatusOK)},
		{Name: "encoding", OK: wantPlain},
		{Name: "length", OK: wantManifestLength},
		{Name: "type", OK: wantManifestType},
	},
	blob: check.List[answer]{
		{Name: "status", OK: wantBlobStatus},
		{Name: "encoding", OK: wantPlain},
		{Name: "range", OK: wantRange},
		{Name: "length", OK: wantBlobLength},
	},
	body: check.List[document]{
		{Name: "body size", OK: wantBodySize},
		{Name: "body digest", OK: wantBodyDigest},
	},
	redirect: check.List[redirect]{
		{Name: "few", OK: fewRedirects},
		{Name: "stays TLS", OK: redirectStaysTLS},
		{Name: "same host", OK: resumeStaysOnHost},
	},
}

func wantBodySize(d document) error {
	return refusal.If(len(d.raw) > oci.MaxManifest, refusal.Oversize, "manifest %s has more than %d bytes", d.reference, oci.MaxManifest)
}

func wantBodyDigest(d document) error {
	got := oci.Digest(d.raw)
	return refusal.If(oci.ValidDigest(d.reference) && got != d.reference, refusal.Digest, "content of %s is %s", d.reference, got)
}

func wantStatus(want int) func(answer) error {
	return func(a answer) error {
		switch a.StatusCode {
		case want:
			return nil
		case http.StatusNotFound:
			return fmt.Errorf("%s: %w", a.what, oci.ErrNotFound)
		}
		text, _ := io.ReadAll(io.LimitReader(a.Body, 200)) // what came of it is shown
		return &StatusError{Status: a.StatusCode, What: a.what, Text: strings.TrimSpace(string(text))}
	}
}

// wantBlobStatus leaves the answers to a range to wantRange.
func wantBlobStatus(a answer) error {
	if a.partial() {
		switch a.StatusCode {
		case http.StatusPartialContent, http.StatusOK, http.StatusRequestedRangeNotSatisfiable:
			return nil
		}
	}
	return wantStatus(http.StatusOK)(a)
}

// wantPlain: nobody asked for a compressed transfer, so nothing is unpacked.
func wantPlain(a answer) error {
	e := a.Header.Get("Content-Encoding")
	return refusal.If(e != "" && e != "identity", refusal.MediaType, "%s: the server sends it encoded as %.40q", a.what, e)
}

func wantManifestLength(a answer) error {
	return refusal.If(a.ContentLength > oci.MaxManifest, refusal.Oversize, "manifest %s of %d bytes", a.what, a.ContentLength)
}

// wantManifestType catches what is not a registry at all: portals, error pages.
// Which kind of manifest it is, the bytes themselves say.
func wantManifestType(a answer) error {
	switch t, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";"); strings.TrimSpace(t) {
	case oci.MediaTypeManifest, oci.MediaTypeIndex:
		return nil
	default:
		return refusal.New(refusal.MediaType, "%s: the server sends %.80q where a manifest belongs", a.what, t)
	}
}

func wantRange(a answer) error {
	if !a.partial() {
		return nil
	}
	want := fmt.Sprintf("bytes %d-%d/%d", a.From, a.To-1, a.size)
	got := a.Header.Get("Content-Range")
	if a.StatusCode != http.StatusPartialContent || got != want && got != strings.TrimSuffix(want, fmt.Sprint(a.size))+"*" {
		return refusal.New(refusal.Range, "%s: asked for %s, the server answers %d with %.80q", a.what, want, a.StatusCode, got)
	}
	return nil
}

func wantBlobLength(a answer) error {
	want := a.To - a.From
	return refusal.If(a.ContentLength >= 0 && a.ContentLength != want, refusal.Size, "%s: the server announces %d bytes where %d belong",
		a.what, a.ContentLength, want)
}

const (
	ahead = 4       // parts that are asked for while one is read
	piece = 1 << 20 // bytes of a part at most: what is ahead is held in memory
)

// Ranges asks for each span by itself, several at once: requests for many at once
// are not known everywhere. Unlike what is resumed, a part may come from wherever
// the registry sends us: nothing that this host began has to fit it.
func (r *registry) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) || oci.CheckName(repo, d.Digest) != nil {
		return nil, fmt.Errorf("blob %.80q of %.80q: the name is not valid", d.Digest, repo)
	}
	if err := oci.CheckSpans(d, spans); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	read := func(s oci.Span) ([]byte, error) {
		body, err := r.part(ctx, r.client, repo, d, s)
		if err != nil {
			return nil, err
		}
		defer body.Close() // read-only: what matters was read
		data := make([]byte, s.To-s.From)
		n, err := io.ReadFull(body, data)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // no byte of it came
		}
		return data[:n], err
	}
	return &ranges{parts: inOrder(ctx, split(spans), read), cancel: cancel}, nil
}

// split cuts spans into pieces.
func split(spans []oci.Span) []oci.Span {
	var out []oci.Span
	for _, s := range spans {
		for ; s.To-s.From > piece; s.From += piece {
			out = append(out, oci.Span{From: s.From, To: s.From + piece})
		}
		out = append(out, s)
	}
	return out
}

// part holds the bytes that a request brought until it ended.
type part struct {
	data []byte
	err  error
}

// inOrder reads spans, some at a time, and gives what came in their order. It ends
// with ctx.
func inOrder(ctx context.Context, spans []oci.Span, read func(oci.Span) ([]byte, error)) <-chan chan part {
	queue := make(chan chan part, ahead-1) // and the one that waits to be put into it
	go func() {
		defer close(queue)
		for _, s := range spans {
			one := make(chan part, 1)
			select {
			case queue <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				data, err := read(s)
				one <- part{data, err}
			}()
		}
	}()
	return queue
}

// ranges is the stream of the parts.
type ranges struct {
	parts  <-chan chan part
	now    part
	cancel context.CancelFunc
}

func (r *ranges) Read(p []byte) (int, error) {
	for len(r.now.data) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		next, more := <-r.parts
		if !more {
			return 0, io.EOF
		}
		r.now = <-next
	}
	n := copy(p, r.now.data)
	r.now.data = r.now.data[n:]
	return n, nil
}

func (r *ranges) Close() error {
	r.cancel()
	return nil
}
