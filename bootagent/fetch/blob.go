// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/refusal"
)

// Store keeps blobs by digest; layers.Store is one.
type Store interface {
	Has(digest string, size int64) bool
	Partial(digest string) string // file that is filled, and resumed after a cut
	Commit(digest string) error   // gives a filled partial its name, durably
}

// tries is how often a download that brings nothing new is begun again.
const tries = 4

// retryAfter is the first pause; it grows with every attempt.
var retryAfter = 250 * time.Millisecond

// Blob brings d into the store, going on where an earlier attempt was cut, also
// before a reboot. What a partial file holds is hashed before it is believed.
// progress, when not nil, is told how many bytes are there.
func Blob(ctx context.Context, src oci.Source, repo string, d oci.Descriptor, dst Store, progress func(int64)) error {
	if dst.Has(d.Digest, d.Size) {
		return nil
	}
	if d.Size < 0 || d.Size > oci.MaxBlob {
		return refusal.New(refusal.Oversize, "%s has %d bytes", d.Digest, d.Size)
	}
	p, err := openPartial(dst.Partial(d.Digest), d)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", d.Digest, err)
	}
	defer p.file.Close()
	p.progress = progress
	resumed := p.at > 0
	err = p.fill(ctx, src, repo)
	if refusal.Of(err) == refusal.Digest && resumed {
		// What was there before the cut may be the bad part: once from the start.
		if err = p.restart(); err == nil {
			err = p.fill(ctx, src, repo)
		}
	}
	if err != nil {
		if refusal.Of(err) == refusal.Digest {
			err = errors.Join(err, p.restart())
		}
		return fmt.Errorf("fetch %s: %w", d.Digest, err)
	}
	if err := p.file.Close(); err != nil {
		return err
	}
	return dst.Commit(d.Digest)
}

// partial is a file that holds the beginning of a blob.
type partial struct {
	file     *os.File
	hash     hash.Hash
	at       int64
	want     oci.Descriptor
	progress func(int64)
}

func openPartial(name string, d oci.Descriptor) (*partial, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	p := &partial{file: f, hash: sha256.New(), want: d}
	if p.at, err = io.Copy(p.hash, io.LimitReader(f, d.Size+1)); err == nil && p.at > d.Size {
		err = p.restart()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
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
func (p *partial) fill(ctx context.Context, src oci.Source, repo string) error {
	for failed, restarts := 0, 0; p.at < p.want.Size; {
		before := p.at
		err := p.ask(ctx, src, repo)
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
		case code != "" || errors.Is(err, oci.ErrNotFound):
			return err
		case p.at > before:
			failed = 0
			continue
		}
		if failed++; failed == tries {
			return shortness(p.want, p.at, err)
		}
		if err := pause(ctx, time.Duration(failed)*retryAfter); err != nil {
			return err
		}
	}
	for _, check := range wholeChecks {
		if err := check.ok(p.want, "sha256:"+hex.EncodeToString(p.hash.Sum(nil))); err != nil {
			return err
		}
	}
	return nil
}

// shortness is what a download that stopped is called.
var shortness = endsEarly

// endsEarly tells a server that keeps the rest back from one that is down.
func endsEarly(want oci.Descriptor, at int64, err error) error {
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return refusal.New(refusal.Size, "%s ends after %d of %d bytes", want.Digest, at, want.Size)
	}
	return err
}

// wholeCheck is applied to a blob that is all there.
type wholeCheck struct {
	name string
	ok   func(want oci.Descriptor, got string) error
}

var wholeChecks = []wholeCheck{
	{"blob digest", func(want oci.Descriptor, got string) error {
		if got != want.Digest {
			return refusal.New(refusal.Digest, "content of %s is %s", want.Digest, got)
		}
		return nil
	}},
}

func (p *partial) ask(ctx context.Context, src oci.Source, repo string) error {
	body, err := src.Blob(ctx, repo, p.want, p.at)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(p, io.LimitReader(body, p.want.Size-p.at))
	return err
}

// Write appends to the file, the hash and the count.
func (p *partial) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.hash.Write(b[:n])
	p.at += int64(n)
	if p.progress != nil {
		p.progress(p.at)
	}
	return n, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
