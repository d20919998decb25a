// SPDX-License-Identifier: Apache-2.0

// Package download brings blobs of a layer into a node's store: resumed where an
// earlier attempt was cut, also before a reboot, and verified by digest before
// they get their name.
//
// It imports oci and spec/refusal. The stages of a boot and the running node
// import it.
package download

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// FetchTime bounds how long one run of a node waits for images: what has come by then is kept,
// and the next run goes on with it.
const FetchTime = 2 * time.Minute

// Store keeps blobs by digest; layers.Store is one.
type Store interface {
	Has(digest string, size int64) bool
	Partial(digest string) string // file that is filled, and resumed after a cut
	Commit(digest string) error   // gives a filled partial its name, durably
	Open(digest string) (io.ReadCloser, error)
}

// tries is how often a download that brings nothing new is begun again.
const tries = 4

// firstPause is the pause before the second attempt; it grows with each.
const firstPause = 250 * time.Millisecond

// Download brings blobs of one repository into a store. The zero Pause is the
// usual one.
type Download struct {
	Source oci.Source
	Repo   string
	Store  Store
	Pause  time.Duration // before the second attempt; it grows with every attempt
	Pace   pull.Pace     // what comes more slowly, over several attempts too, fails with pull.ErrSlow; zero is pull.DefaultPace

	checks []check // nil: all of them; tests take some out
}

// Blob brings d into the store, going on where an earlier attempt was cut, also
// before a reboot. What a partial file holds is hashed before it counts.
// progress, when not nil, is called with the number of bytes that are there.
func (w Download) Blob(ctx context.Context, d oci.Descriptor, progress func(int64)) error {
	w = w.usual()
	if w.Store.Has(d.Digest, d.Size) {
		return nil
	}
	if err := isCapped(d); err != nil {
		return err
	}
	_, err := w.blob(ctx, d, progress)
	return fault.In(err, "fetch %s", d.Digest)
}

// usual fills in what was left out.
func (w Download) usual() Download {
	w.Pause = cmp.Or(w.Pause, firstPause)
	if w.Pace == (pull.Pace{}) {
		w.Pace = pull.DefaultPace
	}
	if w.checks == nil {
		w.checks = checks
	}
	return w
}

func isCapped(d oci.Descriptor) error {
	if d.Size < 0 || d.Size > oci.MaxBlob {
		return refusal.New(refusal.Oversize, "%s has %d bytes", d.Digest, d.Size)
	}
	return nil
}

// blob brings a blob from the start to the end.
func (w Download) blob(ctx context.Context, d oci.Descriptor, progress func(int64)) (tally Tally, err error) {
	file, err := w.own(ctx, d)
	if err != nil {
		return tally, err
	}
	defer file.Close() // Commit has synced what it has to
	if w.Store.Has(d.Digest, d.Size) {
		return Tally{Had: d.Size}, os.Remove(file.Name())
	}
	p, err := resume(file, d)
	if err != nil {
		return tally, err
	}
	p.progress = progress
	tally.Had = p.at
	_, err = oci.Anywhere(ctx, w.Source, func(place oci.Source) (any, error) {
		w.Source = place
		return nil, w.from(ctx, p)
	})
	tally.Fetched = p.came
	if err != nil {
		return tally, err
	}
	return tally, w.Store.Commit(d.Digest)
}

// from completes p from one place. What it leaves is worth going on with, at
// another place or another time.
func (w Download) from(ctx context.Context, p *partial) error {
	resumed := p.at > 0
	err := w.fill(ctx, p)
	if refusal.Of(err) == refusal.Digest && resumed {
		// What was there before may be the bad part: once from the start.
		if err = p.restart(); err == nil {
			err = w.fill(ctx, p)
		}
	}
	if refusal.Of(err) == refusal.Digest {
		err = errors.Join(err, p.restart())
	}
	return err
}

// partial is a file that holds the beginning of a blob.
type partial struct {
	file     *os.File
	hash     hash.Hash
	at       int64
	came     int64 // bytes from the network, those thrown away included
	want     oci.Descriptor
	progress func(int64)
}

// own opens the partial file of a blob for this fetch alone, until it is closed. Who fetches the
// blob at the same time, in this process or another, is waited for: what is verified must
// not change when it has its name.
func (w Download) own(ctx context.Context, d oci.Descriptor) (*os.File, error) {
	for {
		f, err := os.OpenFile(w.Store.Partial(d.Digest), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		var is, there os.FileInfo
		if err = stall.Lock(ctx, f, false); err == nil {
			is, err = f.Stat()
		}
		if err == nil {
			there, err = os.Lstat(f.Name())
		}
		if err == nil && os.SameFile(is, there) {
			return f, nil
		}
		_ = f.Close() // nothing was written
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("wait for another fetch of it: %w", err)
		}
	}
}

// resume goes on with a partial file.
func resume(f *os.File, d oci.Descriptor) (p *partial, err error) {
	p = &partial{file: f, hash: sha256.New(), want: d}
	if p.at, err = io.Copy(p.hash, io.LimitReader(f, d.Size+1)); err == nil && p.at > d.Size {
		err = p.restart()
	}
	return p, err
}

func (p *partial) restart() error {
	p.hash.Reset()
	p.at = 0
	if err := p.file.Truncate(0); err != nil {
		return err
	}
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

// fill asks for the rest until all is there or nothing comes any more.
func (w Download) fill(ctx context.Context, p *partial) error {
	pace := newPacer(w.Pace, p.came)
	for failed, restarts := 0, 0; p.at < p.want.Size; {
		before := p.at
		err := w.ask(ctx, p)
		switch code := refusal.Of(err); {
		case ctx.Err() != nil:
			return ctx.Err()
		case before > 0 && (code == refusal.Range || code == refusal.Redirect):
			// What cannot be resumed is read from the start, but not for ever.
			if restarts++; restarts == tries {
				return err
			}
			if err := p.restart(); err != nil {
				return err
			}
		case code != "" || errors.Is(err, oci.ErrNotFound) || errors.Is(err, pull.ErrSlow):
			return err
		case pace.slow(p.came):
			return errors.Join(fmt.Errorf("%w: %s", pull.ErrSlow, w.Pace), err)
		case p.at > before:
			failed = 0
			continue
		}
		if failed++; failed == tries {
			return w.judge(ending{want: p.want, at: p.at, err: err})
		}
		if err := stall.Rest(ctx, time.Duration(failed)*w.Pause); err != nil {
			return err
		}
	}
	return w.judge(ending{want: p.want, at: p.at, got: digest.From(p.hash)})
}

// judge applies the checks; what they have nothing against ends with the error
// of the transport, if any.
func (w Download) judge(e ending) error {
	for _, check := range w.checks {
		if err := check.ok(e); err != nil {
			return err
		}
	}
	return e.err
}

// ending is how a download ended.
type ending struct {
	want oci.Descriptor
	at   int64
	got  string // digest of the content; "" when it is not all there
	err  error  // of the last attempt
}

// check is one thing that an ended download is held to.
type check struct {
	name string
	ok   func(ending) error
}

var checks = []check{
	{"comes whole", isWhole},
	{"blob digest", hasDigest},
}

// isWhole tells a truncated body from a broken connection.
func isWhole(e ending) error {
	if e.at < e.want.Size && (e.err == nil || errors.Is(e.err, io.ErrUnexpectedEOF)) {
		return refusal.New(refusal.Size, "%s ends after %d of %d bytes", e.want.Digest, e.at, e.want.Size)
	}
	return nil
}

func hasDigest(e ending) error {
	if e.at == e.want.Size && e.got != e.want.Digest {
		return refusal.New(refusal.Digest, "content of %s is %s", e.want.Digest, e.got)
	}
	return nil
}

func (w Download) ask(ctx context.Context, p *partial) error {
	body, err := w.Source.Blob(ctx, w.Repo, p.want, p.at)
	if err != nil {
		return err
	}
	defer body.Close() // a read-only body: what matters was read, or is asked for again
	_, err = io.Copy(p, io.LimitReader(body, p.want.Size-p.at))
	return err
}

// Write appends to the file, the hash and the count.
func (p *partial) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.hash.Write(b[:n])
	p.at += int64(n)
	p.came += int64(n)
	if p.progress != nil {
		p.progress(p.at)
	}
	return n, err
}

// pacer measures what several attempts bring together: each of them may end soon,
// and none be slow by itself.
type pacer struct {
	pace  pull.Pace
	since time.Time
	had   int64
}

func newPacer(p pull.Pace, came int64) *pacer { return &pacer{p, time.Now(), came} }

// slow reports whether less than the pace has come since it last looked. Before a
// span is over it does not look.
func (p *pacer) slow(came int64) bool {
	spans := int64(time.Since(p.since) / p.pace.Per)
	if spans == 0 {
		return false
	}
	slow := came-p.had < spans*p.pace.Bytes
	p.since, p.had = time.Now(), came
	return slow
}
