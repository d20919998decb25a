// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/oci/internal/capped"
	"github.com/caisson-os/caisson/spec/refusal"
)

// ErrNotFound is what a place answers for a manifest or blob it does not hold.
var ErrNotFound = errors.New("not found")

// ErrAnswered is what an error is that a registry has answered, for all that it gave nothing: it
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
		data, err := capped.Read(body, d.Size, limit)
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
