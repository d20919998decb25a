// SPDX-License-Identifier: Apache-2.0

package media

import (
	"context"
	"io"

	"github.com/caisson-os/caisson/media/fat"
)

// Step is told how far the writing of a medium has come: a word for what is done, and bytes of it.
type Step func(what string, done, of int64)

// pace is after how many bytes somebody is told again.
const pace = 4 << 20

// tally counts the bytes of a step, for as long as somebody wants the medium.
type tally struct {
	ctx            context.Context
	step           Step
	what           string
	done, of, told int64
}

func (m Medium) tally(ctx context.Context, what string, of int64) *tally {
	return &tally{ctx: ctx, step: m.Step, what: what, of: of}
}

// add counts bytes. The error is why nobody wants the medium any more.
func (t *tally) add(n int) error {
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	t.done = min(t.done+int64(n), t.of) // tables and folders belong to no file
	if t.step != nil && (t.told == 0 || t.done-t.told >= pace || t.done == t.of && t.told < t.of) {
		t.told = t.done
		t.step(t.what, t.done, t.of)
	}
	return nil
}

// onto counts what is written.
func (t *tally) onto(w io.WriterAt) io.WriterAt { return counted{w: w, t: t} }

// from counts what is read.
func (t *tally) from(r io.Reader) io.Reader { return counted{r: r, t: t} }

type counted struct {
	w io.WriterAt
	r io.Reader
	t *tally
}

// WriteAt implements io.WriterAt.
func (c counted) WriteAt(p []byte, at int64) (int, error) {
	if err := c.t.add(len(p)); err != nil {
		return 0, err
	}
	return c.w.WriteAt(p, at)
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == nil {
		err = c.t.add(n)
	}
	return n, err
}

// writeVolume writes the file system of files at a byte of a medium.
func (m Medium) writeVolume(ctx context.Context, to io.WriterAt, at, size int64, files []fat.File) error {
	var of int64
	for _, f := range files {
		of += f.Size
	}
	return m.volume(files, size).Write(io.NewOffsetWriter(m.tally(ctx, "write", of).onto(to), at))
}
