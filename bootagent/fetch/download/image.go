// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Tally is how an image came.
type Tally struct {
	Fetched int64 // bytes from the network
	Had     int64 // bytes that were there: of older images, or of an attempt that was cut
	Whole   error // why it was fetched whole where chunks would have done; nil where it was not
}

// maxSpans is how many parts of an image are asked for at once; there may be another
// time.
const maxSpans = 2048

// worth is how much of an image has to be there for the rest to be fetched in parts.
func worth(had, size int64) bool { return had*10 >= size }

// Image is [Download.Blob] for an image with a chunk index; nil is none. kept are digests of
// blobs in the store that may share chunks with it, the likeliest first. Only what
// none of them has is fetched, and what an attempt before this one brought is not
// fetched again.
//
// The index may be anything: each chunk is compared with it, and the whole with the
// digest. Where chunks cannot be used the image is fetched whole. Where nothing
// answers it is not: what came is worth going on with.
func (w Download) Image(ctx context.Context, d oci.Descriptor, index []byte, kept []string, progress func(int64)) (Tally, error) {
	w = w.usual()
	if w.Store.Has(d.Digest, d.Size) {
		return Tally{Had: d.Size}, nil
	}
	if err := isCapped(d); err != nil {
		return Tally{}, err
	}
	tally, err := w.assemble(ctx, d, index, kept, progress)
	if useless := new(uselessError); errors.As(err, &useless) {
		whole, failed := w.blob(ctx, d, progress)
		tally, err = Tally{Fetched: tally.Fetched + whole.Fetched, Had: whole.Had, Whole: useless.why}, failed
	}
	return tally, fault.In(err, "fetch %s", d.Digest)
}

// uselessError says why chunks are not used; why is nil where there is no index.
type uselessError struct{ why error }

func (e *uselessError) Error() string { return fmt.Sprint("chunks are not used: ", e.why) }

// assemble makes the image of chunks. What it leaves in the store's partial file
// when it fails is worth going on with, be it in parts or from the start.
func (w Download) assemble(ctx context.Context, d oci.Descriptor, index []byte, kept []string,
	progress func(int64)) (tally Tally, err error) {
	if index == nil {
		return tally, &uselessError{}
	}
	file, err := w.own(ctx, d)
	if err != nil {
		return tally, err
	}
	defer file.Close() // Commit has synced what it has to
	if w.Store.Has(d.Digest, d.Size) {
		return Tally{Had: d.Size}, os.Remove(file.Name())
	}
	a, err := delta.Assemble(file, index, d.Size)
	if err != nil {
		return tally, &uselessError{refusal.New(refusal.Layer, "%w", err)}
	}
	if err := a.Resume(ctx); err != nil {
		return tally, err
	}
	for _, one := range kept {
		if a.Missing() == 0 {
			break
		}
		if err := w.take(ctx, a, one); err != nil {
			return tally, err
		}
	}
	tally.Had = d.Size - a.Missing()
	if progress != nil {
		progress(tally.Had)
	}
	if !worth(tally.Had, d.Size) {
		return tally, errors.Join(file.Truncate(a.Whole()), &uselessError{fmt.Errorf("%.1f MB of it are new", float64(a.Missing())/1e6)})
	}
	p := &parts{Assembly: a, want: d, progress: progress}
	_, err = oci.Anywhere(ctx, w.Source, func(place oci.Source) (any, error) { return nil, w.fillGaps(ctx, place, p) })
	tally.Fetched = p.came
	if refusal.Of(err) != "" {
		return tally, errors.Join(file.Truncate(a.Whole()), &uselessError{err})
	}
	if err != nil {
		return tally, err
	}
	got, err := sumOf(file, d.Size)
	if err != nil {
		return tally, err
	}
	if err := w.judge(ending{want: d, at: d.Size, got: got}); err != nil {
		return tally, errors.Join(file.Truncate(0), &uselessError{err})
	}
	// A file that was longer before would be another one than what was hashed.
	if err := file.Truncate(d.Size); err != nil {
		return tally, err
	}
	return tally, w.Store.Commit(d.Digest)
}

// take takes what an image in the store has. One that cannot be read has nothing.
func (w Download) take(ctx context.Context, a *delta.Assembly, digest string) error {
	other, err := w.Store.Open(digest)
	if err != nil {
		return nil // it is as if it were not there
	}
	defer other.Close() // only read
	if err := a.Take(ctx, other); ctx.Err() != nil || errors.Is(err, delta.ErrWrite) {
		return err
	}
	return nil // what could be read was taken
}

// parts is an image that is being assembled.
type parts struct {
	*delta.Assembly
	came     int64 // bytes from the network, those thrown away included
	want     oci.Descriptor
	progress func(int64)
}

// fillGaps asks one place for what is missing, until all is there or nothing comes
// any more.
func (w Download) fillGaps(ctx context.Context, place oci.Source, p *parts) error {
	ranger, ok := place.(oci.Ranger)
	if !ok {
		return refusal.New(refusal.Range, "%s: this place serves no parts", p.want.Digest)
	}
	pace := newPacer(w.Pace, p.came)
	for failed := 0; p.Missing() > 0; {
		before := p.Missing()
		err := w.askGaps(ctx, ranger, p)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case refusal.Of(err) != "" || errors.Is(err, oci.ErrNotFound) || errors.Is(err, pull.ErrSlow):
			return err
		case pace.slow(p.came):
			return errors.Join(fmt.Errorf("%w: %s", pull.ErrSlow, w.Pace), err)
		case p.Missing() < before:
			failed = 0
			continue
		}
		if failed++; failed == tries {
			return w.judge(ending{want: p.want, at: p.want.Size - p.Missing(), err: err})
		}
		if err := stall.Rest(ctx, time.Duration(failed)*w.Pause); err != nil {
			return err
		}
	}
	return nil
}

func (w Download) askGaps(ctx context.Context, ranger oci.Ranger, p *parts) error {
	gaps := p.Gaps(maxSpans)
	spans := make([]oci.Span, len(gaps))
	for i, g := range gaps {
		spans[i] = oci.Span(g)
	}
	body, err := ranger.Ranges(ctx, w.Repo, p.want, spans)
	if err != nil {
		return err
	}
	defer body.Close() // a read-only body: what matters was read, or is asked for again
	err = p.Fill(io.TeeReader(body, p), gaps)
	if errors.Is(err, delta.ErrWrong) {
		return refusal.New(refusal.Digest, "%s: %w", p.want.Digest, err)
	}
	return err
}

// Write counts what comes.
func (p *parts) Write(b []byte) (int, error) {
	p.came += int64(len(b))
	if p.progress != nil {
		p.progress(p.want.Size - p.Missing())
	}
	return len(b), nil
}

func sumOf(r io.ReaderAt, size int64) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(r, 0, size)); err != nil {
		return "", err
	}
	return digest.From(h), nil
}
