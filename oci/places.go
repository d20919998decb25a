// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
)

// mirrored is several places that hold the same. It moves on from a place that
// does not answer; what it cannot judge, a caller judges with [InOrder] or
// [Anywhere], so that a place that serves rubbish does not hide the next.
type mirrored struct {
	list []Source
	good atomic.Int64 // index of the place that was last good for content by digest
}

// Places returns the source that asks the places of list, which hold the same: in
// order for a tag, from the last good one on for a digest.
func Places(list ...Source) Source { return &mirrored{list: list} }

func (m *mirrored) Manifest(ctx context.Context, repo, reference, etag string) (Response, error) {
	ask := func(s Source) (Response, error) { return s.Manifest(ctx, repo, reference, etag) }
	if ValidDigest(reference) {
		return Anywhere(ctx, m, ask)
	}
	return InOrder(ctx, m, ask)
}

func (m *mirrored) Blob(ctx context.Context, repo string, d Descriptor, offset int64) (io.ReadCloser, error) {
	return Anywhere(ctx, m, func(s Source) (io.ReadCloser, error) { return s.Blob(ctx, repo, d, offset) })
}

// InOrder calls ask with each place of s in the order of the configuration, until
// one of them gives what ask finds nothing wrong with. It is for names, of which
// the first place knows best. The error joins those of all places.
func InOrder[T any](ctx context.Context, s Source, ask func(Source) (T, error)) (T, error) {
	got, _, err := first(ctx, places(s), 0, ask)
	return got, err
}

// Anywhere is InOrder for content named by its digest, which is the same wherever
// it comes from: it begins with the place that was last good for such.
func Anywhere[T any](ctx context.Context, s Source, ask func(Source) (T, error)) (T, error) {
	m, several := s.(*mirrored)
	if !several {
		return ask(s)
	}
	got, at, err := first(ctx, m.list, int(m.good.Load()), ask)
	if err == nil {
		m.good.Store(int64(at))
	}
	return got, err
}

func places(s Source) []Source {
	if m, several := s.(*mirrored); several {
		return m.list
	}
	return []Source{s}
}

// first returns the first good answer and the index of who gave it.
func first[T any](ctx context.Context, list []Source, from int, ask func(Source) (T, error)) (T, int, error) {
	var errs []error
	for i := range list {
		at := (from + i) % len(list)
		got, err := ask(list[at])
		if err == nil {
			return got, at, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	var none T
	return none, 0, errors.Join(errs...)
}
