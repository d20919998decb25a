// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// ErrSlow is returned where content arrives, but not fast enough to wait for.
var ErrSlow = errors.New("too slow")

// errSilence is returned where nothing arrives any more.
var errSilence = errors.New("the server sends no more data")

// Pace is the least that a download must bring: Bytes in each span of Per.
type Pace struct {
	Bytes int64
	Per   time.Duration
}

// DefaultPace is 1 KiB a second over a minute. At this rate an image takes days:
// what is slower is not a slow line but a fault, or meant to hold a node.
var DefaultPace = Pace{60 << 10, time.Minute}

func (p Pace) String() string { return fmt.Sprintf("less than %d bytes in %s", p.Bytes, p.Per) }

// watch ends a request when nothing arrives for a while, or too little. A deadline
// for the whole would punish large images on slow lines.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	quiet  time.Duration
	pace   Pace
	bytes  atomic.Int64
	stops  []func() bool
	silent *time.Timer
}

// newWatch returns a context for one request. whole, when not zero, is the longest
// that it may take with its answer.
func newWatch(ctx context.Context, o Options, whole time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{ctx: ctx, cancel: cancel, quiet: o.silence(), pace: o.pace()}
	w.silent = time.AfterFunc(w.quiet, func() { cancel(fmt.Errorf("%w for %s", errSilence, w.quiet)) })
	w.stops = append(w.stops, w.silent.Stop)
	if whole > 0 {
		late := time.AfterFunc(whole, func() { cancel(fmt.Errorf("%w: not whole after %s", ErrSlow, whole)) })
		w.stops = append(w.stops, late.Stop)
	}
	return ctx, w
}

// explain ends the watch and returns the reason for which it ended a request.
func (w *watch) explain(err error) error {
	err = w.reason(err)
	w.end()
	return err
}

func (w *watch) reason(err error) error {
	if cause := context.Cause(w.ctx); errors.Is(cause, errSilence) || errors.Is(cause, ErrSlow) {
		return cause
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return plainError{fmt.Errorf("%w: the registry speaks HTTP; a bootstrap allows that with --registry-plain-http", err)}
	}
	return err
}

// plainError is of a registry without TLS that was asked by TLS.
type plainError struct{ error }

func (e plainError) Unwrap() error { return e.error }
func (plainError) Hint() string    { return "--plain-http asks a registry without TLS" }

func (w *watch) end() {
	for _, stop := range w.stops {
		stop()
	}
	w.cancel(nil)
}

// body returns b, watched: from now on there is a least rate.
func (w *watch) body(b io.ReadCloser) io.ReadCloser {
	ticker := time.NewTicker(w.pace.Per)
	go func() {
		defer ticker.Stop()
		for before := int64(0); ; {
			select {
			case <-w.ctx.Done():
				return
			case <-ticker.C:
			}
			now := w.bytes.Load()
			if now-before < w.pace.Bytes {
				w.cancel(fmt.Errorf("%w: %s", ErrSlow, w.pace))
				return
			}
			before = now
		}
	}()
	return &watched{b, w}
}

type watched struct {
	io.ReadCloser
	w *watch
}

func (b *watched) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.w.bytes.Add(int64(n))
		b.w.silent.Reset(b.w.quiet)
	}
	if err != nil && err != io.EOF {
		err = b.w.reason(err)
	}
	return n, err
}

func (b *watched) Close() error {
	err := b.ReadCloser.Close()
	b.w.end()
	return err
}
