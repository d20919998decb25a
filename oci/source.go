// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// ErrNotFound is the answer of a place for a manifest or blob it does not hold.
var ErrNotFound = errors.New("not found")

// ErrAnswered marks an error that a registry has answered, for all that it gave nothing: it
// was reached.
var ErrAnswered = errors.New("answered")

// Source reads from one place, or from several in order. Repositories are named
// without prefix: "node", "layer", "fleet".
type Source interface {
	// Manifest asks for a tag or a digest. With the etag of an earlier answer,
	// an unchanged manifest is not sent again. Under a digest the content is
	// checked; what a tag points at is nobody's promise.
	Manifest(ctx context.Context, repo, reference, etag string) (Response, error)
	// Blob reads d from offset on. It never gives more than d.Size bytes; the
	// caller hashes them, [ReadBlob] does so for small ones.
	Blob(ctx context.Context, repo string, d Descriptor, offset int64) (io.ReadCloser, error)
}

// Span is bytes of a blob, To not among them.
type Span struct{ From, To int64 }

// Ranger is a [Source] that can read parts of a blob. Not every place serves parts:
// an error of spec/refusal says that this one does not, or not those.
type Ranger interface {
	// Ranges reads the spans of d, which rise and do not touch, as one stream. The
	// caller knows what belongs there.
	Ranges(ctx context.Context, repo string, d Descriptor, spans []Span) (io.ReadCloser, error)
}

// CheckSpans refuses spans that are not of d, or not in order.
func CheckSpans(d Descriptor, spans []Span) error {
	at := int64(0)
	for _, s := range spans {
		if s.From < at || s.To <= s.From || s.To > d.Size {
			return fmt.Errorf("blob %s has %d bytes: %d to %d cannot be read of it", d.Digest, d.Size, s.From, s.To)
		}
		at = s.To
	}
	return nil
}

// Response is a manifest as it was served.
type Response struct {
	Data        []byte
	MediaType   string // what the server calls it; a hint
	Digest      string // computed from Data
	ETag        string
	NotModified bool // nothing newer than the etag that was sent; Data is nil
}

// ReadBlob reads all of a small blob and verifies it. Inline data is as good as
// the blob itself, since it is hashed the same. Of several places, the first with
// the right content counts.
func ReadBlob(ctx context.Context, s Source, repo string, d Descriptor, limit int64) ([]byte, error) {
	return whole.ReadBlob(ctx, s, repo, d, limit)
}

func (r rules) ReadBlob(ctx context.Context, s Source, repo string, d Descriptor, limit int64) ([]byte, error) {
	if err := r.blob.Run(wanted{d, limit}); err != nil {
		return nil, err
	}
	if d.Data != nil {
		return d.Data, r.content.Run(content{d, d.Data})
	}
	return Anywhere(ctx, s, func(s Source) ([]byte, error) {
		body, err := s.Blob(ctx, repo, d, 0)
		if err != nil {
			return nil, err
		}
		defer body.Close() // read-only: what matters was read
		data, err := strict.ReadCapped(body, d.Size, limit)
		if err != nil {
			return nil, fmt.Errorf("read blob %s: %w", d.Digest, err)
		}
		return data, r.content.Run(content{d, data})
	})
}

func blobCapped(w wanted) error {
	if w.Size > w.limit {
		return refusal.New(refusal.Oversize, "%s has %d bytes, the cap is %d", w.Digest, w.Size, w.limit)
	}
	return nil
}

// mirrored is several places that hold the same. It moves on from a place that
// does not answer; what it cannot judge, a caller judges with [Accepted],
// [Everywhere] or [Anywhere], so that a place that serves rubbish does not hide
// the next.
type mirrored struct {
	list []Source
	good atomic.Int64 // index of the place that was last good for content by digest
	mute mute
}

// Places returns the source that asks the places of list, which hold the same: in
// order for a tag, from the last good one on for a digest. Of a source with several
// places each is one of them.
func Places(list ...Source) Source {
	var all []Source
	for _, s := range list {
		if m, several := s.(*mirrored); several {
			all = append(all, m.list...)
		} else {
			all = append(all, s)
		}
	}
	return &mirrored{list: all, mute: newMute(len(all))}
}

func (m *mirrored) Manifest(ctx context.Context, repo, reference, etag string) (Response, error) {
	if ValidDigest(reference) {
		return Anywhere(ctx, m, func(s Source) (Response, error) { return s.Manifest(ctx, repo, reference, etag) })
	}
	return Accepted(ctx, m, InOrder, func(ctx context.Context, s Source) (Response, error) {
		return s.Manifest(ctx, repo, reference, etag)
	}, func(r Response) (Response, error) { return r, nil })
}

func (m *mirrored) Blob(ctx context.Context, repo string, d Descriptor, offset int64) (io.ReadCloser, error) {
	return Anywhere(ctx, m, func(s Source) (io.ReadCloser, error) { return s.Blob(ctx, repo, d, offset) })
}

// Anywhere returns what the first place gives that ask finds nothing wrong with. It
// is for content named by its digest, which is the same wherever it comes from: it
// begins with the place that was last good for such. The error joins those of all
// places.
func Anywhere[T any](ctx context.Context, s Source, ask func(Source) (T, error)) (T, error) {
	m, several := s.(*mirrored)
	if !several {
		return ask(s)
	}
	var errs []error
	from := int(m.good.Load())
	for i := range m.list {
		at := (from + i) % len(m.list)
		got, err := ask(m.list[at])
		if err == nil {
			m.good.Store(int64(at))
			return got, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	var none T
	return none, errors.Join(errs...)
}
