// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/internal/strict"
)

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
// order for a tag, from the last good one on for a digest.
func Places(list ...Source) Source { return &mirrored{list: list, mute: newMute(len(list))} }

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

// BlobPath is where a layout keeps the content of a valid digest.
func BlobPath(digest string) string {
	return "blobs/sha256/" + digests.Hex(digest)
}

// ParseLayoutIndex reads a layout's index.json: an index without a cap on its
// entries, whose media type may be absent.
func ParseLayoutIndex(raw []byte) (*Index, error) {
	var x Index
	if err := strict.Decode(raw, &x); err != nil {
		return nil, &DamagedError{fmt.Errorf("index.json: %w", err)}
	}
	if x.MediaType != "" && x.MediaType != MediaTypeIndex {
		return nil, &DamagedError{fmt.Errorf("index.json has the media type %q", x.MediaType)}
	}
	for i, d := range x.Manifests {
		if err := whole.checkDescriptor(d, fmt.Sprintf("index.json: descriptor %d", i)); err != nil {
			return nil, err
		}
	}
	return &x, nil
}

// DamagedError is the error for a layout whose files are not what they were: cut,
// altered or of another program. Asking again does not help.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// Hint says what an operator can do about it.
func (e *DamagedError) Hint() string {
	return "put back a copy of the layout, or build and publish into a new directory"
}
