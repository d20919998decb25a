// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// bound limits the answers that the library reads to their end: manifests, lists of
// what is attached to one, and of tags. They are whole within patience; a page of
// tags is not longer than its cap, the library caps the others itself.
func bound(resp *http.Response, patience time.Duration, page int64) {
	path := resp.Request.URL.Path
	tags := strings.HasSuffix(path, "/tags/list")
	if !tags && !strings.Contains(path, "/manifests/") && !strings.Contains(path, "/referrers/") {
		return
	}
	b := &bounded{ReadCloser: resp.Body, most: 1 << 62}
	if tags {
		b.most = page
	}
	b.timer = time.AfterFunc(patience, func() {
		b.late.Store(true)
		_ = b.ReadCloser.Close() // ends the read that waits
	})
	resp.Body = b
}

type bounded struct {
	io.ReadCloser
	read  int64
	most  int64
	timer *time.Timer
	late  atomic.Bool
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	switch {
	case b.read > b.most:
		_ = b.Close() // the library leaves open what it could not decode
		return 0, refusal.New(refusal.Oversize, "a page of a list of tags has more than %d bytes", b.most)
	case b.late.Load():
		return n, pull.ErrSlow
	}
	return n, err
}

func (b *bounded) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}
