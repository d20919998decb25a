// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/internal/check"
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
	return refusal.If(w.Size > w.limit, refusal.Oversize, "%s has %d bytes, the cap is %d", w.Digest, w.Size, w.limit)
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

// Order is how [Accepted] asks several places.
type Order int

// Orders.
const (
	InOrder Order = iota // as configured: the first place knows best
	AtOnce               // what is accepted is as good wherever it comes from
)

// patience is how long a place that says nothing has to itself.
const patience = 10 * time.Second

// Accepted returns the first answer of a place of s that accept finds nothing wrong
// with. It is for what is judged by its content: no answer counts for being the
// first. accept runs for one answer at a time, ask for several, each of which ends
// with the context that it is given. The error joins those of all places.
//
// InOrder, a place that says nothing for 10 s is heard beside the next one. AtOnce,
// it is not waited for any longer where another one holds nothing.
func Accepted[T, A any](ctx context.Context, s Source, order Order, ask func(context.Context, Source) (T, error),
	accept func(T) (A, error)) (A, error) {
	var took A
	err := hear(ctx, s, order, ask, func(got T) (enough bool, err error) {
		a, err := accept(got)
		if err == nil {
			took = a
		}
		return true, err
	})
	return took, err
}

// Everywhere is Accepted at once for what differs from place to place: it returns
// what is accepted of each, and an error where that is nothing. A place that says
// nothing for 10 s is not waited for where another one has answered.
func Everywhere[T, A any](ctx context.Context, s Source, ask func(context.Context, Source) (T, error),
	accept func(T) (A, error)) (all []A, err error) {
	err = hear(ctx, s, AtOnce, ask, func(got T) (enough bool, err error) {
		a, err := accept(got)
		if err == nil {
			all = append(all, a)
		}
		return false, err
	})
	return all, err
}

// Missing reports whether an error says that nobody holds what was asked for: at
// least one place says so, and none gave something that is refused.
func Missing(err error) bool { return errors.Is(err, ErrNotFound) && refusal.Of(err) == "" }

// hear asks the places of s until accept takes an answer and says that it is enough, or each has
// answered. It returns nil where one was taken.
func hear[T any](ctx context.Context, s Source, order Order, ask func(context.Context, Source) (T, error),
	accept func(T) (enough bool, err error)) error {
	m, several := s.(*mirrored)
	if !several {
		m = &mirrored{list: []Source{s}, mute: newMute(1)}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		at  int
		got T
		err error
	}
	answers := make(chan answer, len(m.list)) // who is not waited for ends there
	silent := time.NewTimer(patience)
	defer silent.Stop()
	var errs []error
	asked, taken, settled := 0, false, false
	for waiting := map[int]bool{}; ; {
		for asked < len(m.list) && (order == AtOnce || !waiting[asked-1] || m.mute.is(asked-1)) {
			at := asked
			waiting[at] = true
			go func() {
				got, err := ask(ctx, m.list[at])
				answers <- answer{at, got, err}
			}()
			silent.Reset(patience)
			asked++
		}
		if len(waiting) == 0 || order == AtOnce && settled && m.mute.are(waiting) {
			break
		}
		select {
		case a := <-answers:
			delete(waiting, a.at)
			m.mute.set(a.at, false)
			enough := false
			if a.err == nil {
				enough, a.err = accept(a.got)
			}
			if a.err == nil && enough {
				return nil
			}
			taken = taken || a.err == nil
			settled = settled || a.err == nil || Missing(a.err)
			errs = append(errs, a.err)
		case <-silent.C:
			for at := range waiting {
				m.mute.set(at, true)
			}
			silent.Reset(patience)
		case <-ctx.Done():
			errs = append(errs, context.Cause(ctx))
			clear(waiting)
			asked = len(m.list)
		}
	}
	if taken {
		return nil
	}
	return errors.Join(errs...)
}

// mute remembers which places said nothing for patience. For a minute they are not
// waited for again: one question after the other would else wait for each.
type mute struct {
	began time.Time
	until []atomic.Int64 // since began
}

func newMute(places int) mute { return mute{time.Now(), make([]atomic.Int64, places)} }

func (m mute) set(at int, is bool) {
	until := int64(0)
	if is {
		until = int64(time.Since(m.began) + time.Minute)
	}
	m.until[at].Store(until)
}

func (m mute) is(at int) bool { return int64(time.Since(m.began)) < m.until[at].Load() }

func (m mute) are(places map[int]bool) bool {
	for at := range places {
		if !m.is(at) {
			return false
		}
	}
	return true
}

// rules say what artifacts must be. Their exported methods are the package's
// functions of the same names, which use [whole]; tests take checks out of a copy
// and see attacks come through.
type rules struct {
	parse      check.List[*parsed]
	descriptor check.List[placed]
	content    check.List[content]
	document   check.List[document]
	blob       check.List[wanted]
}

// placed is a descriptor and where it stands. rules are those for its inline data.
type placed struct {
	Descriptor
	where string
	rules rules
}

// content is data under the descriptor that it was asked for by.
type content struct {
	Descriptor
	data []byte
}

// document is a manifest that may hold a signed document of a type.
type document struct {
	*Manifest
	documentType string
}

// wanted is a blob before anything of it is read, and its cap in bytes.
type wanted struct {
	Descriptor
	limit int64
}

var whole = rules{
	parse: check.List[*parsed]{
		{Name: "size", OK: manifestCapped},
		{Name: "entries", OK: entriesCapped},
		{Name: "strict", OK: manifestParses},
		{Name: "kind", OK: kindIsWanted},
		{Name: "one kind", OK: kindsAreNotMixed},
		{Name: "version", OK: versionIsTwo},
		{Name: "no nesting", OK: indexIsFlat},
		{Name: "descriptors", OK: descriptorsAreSound},
	},
	descriptor: check.List[placed]{
		{Name: "digest form", OK: digestHasForm},
		{Name: "size range", OK: sizeInRange},
		{Name: "media type", OK: mediaTypeIsThere},
		{Name: "inline data", OK: inlineDataFits},
	},
	content: check.List[content]{
		{Name: "content size", OK: contentHasSize},
		{Name: "content digest", OK: contentHasDigest},
	},
	document: check.List[document]{
		{Name: "artifact type", OK: artifactIsWanted},
		{Name: "document first", OK: documentIsFirst},
		{Name: "flood", OK: bundlesCapped},
	},
	blob: check.List[wanted]{
		{Name: "blob cap", OK: blobCapped},
	},
}
