// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/oci"
)

const (
	ahead = 4       // parts that are asked for while one is read
	piece = 1 << 20 // bytes of a part at most: what is ahead is held in memory
)

// Ranges asks for each span by itself, several at once: requests for many at once
// are not known everywhere. Unlike what is resumed, a part may come from wherever
// the registry sends us: nothing that this host began has to fit it.
func (r *registry) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	if !oci.ValidDigest(d.Digest) || oci.CheckName(repo, d.Digest) != nil {
		return nil, fmt.Errorf("blob %.80q of %.80q: the name is not valid", d.Digest, repo)
	}
	if err := oci.CheckSpans(d, spans); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	read := func(s oci.Span) ([]byte, error) {
		body, err := r.part(ctx, r.client, repo, d, s)
		if err != nil {
			return nil, err
		}
		defer body.Close() // read-only: what matters was read
		data := make([]byte, s.To-s.From)
		n, err := io.ReadFull(body, data)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // nothing of it came
		}
		return data[:n], err
	}
	return &ranges{parts: inOrder(ctx, split(spans), read), cancel: cancel}, nil
}

// split cuts spans into pieces.
func split(spans []oci.Span) []oci.Span {
	var out []oci.Span
	for _, s := range spans {
		for ; s.To-s.From > piece; s.From += piece {
			out = append(out, oci.Span{From: s.From, To: s.From + piece})
		}
		out = append(out, s)
	}
	return out
}

// part holds the bytes that a request brought until it ended.
type part struct {
	data []byte
	err  error
}

// inOrder reads spans, some at a time, and gives what came in their order. It ends
// with ctx.
func inOrder(ctx context.Context, spans []oci.Span, read func(oci.Span) ([]byte, error)) <-chan chan part {
	queue := make(chan chan part, ahead-1) // and the one that waits to be put into it
	go func() {
		defer close(queue)
		for _, s := range spans {
			one := make(chan part, 1)
			select {
			case queue <- one:
			case <-ctx.Done():
				return
			}
			go func() {
				data, err := read(s)
				one <- part{data, err}
			}()
		}
	}()
	return queue
}

// ranges is the stream of the parts.
type ranges struct {
	parts  <-chan chan part
	now    part
	cancel context.CancelFunc
}

func (r *ranges) Read(p []byte) (int, error) {
	for len(r.now.data) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		next, more := <-r.parts
		if !more {
			return 0, io.EOF
		}
		r.now = <-next
	}
	n := copy(p, r.now.data)
	r.now.data = r.now.data[n:]
	return n, nil
}

func (r *ranges) Close() error {
	r.cancel()
	return nil
}
