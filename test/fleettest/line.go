// SPDX-License-Identifier: Apache-2.0

package fleettest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/reserve"
	"github.com/caisson-os/caisson/test/freeport"
)

// Line leads to a registry, until it is cut.
type Line struct {
	At string

	server  *httptest.Server
	handler http.Handler

	mu   sync.Mutex
	left int       // requests until it is cut; -1 is never
	kill func()    // when it is
	now  time.Time // by its clock: a publisher compares its own with it
}

// NewLine makes one to a server.
func NewLine(t *testing.T, backend string) *Line {
	l := &Line{left: -1}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	proxy.ModifyResponse = func(r *http.Response) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Header.Set("Date", l.now.Format(http.TimeFormat))
		return nil
	}
	l.handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !l.passes() {
			w.WriteHeader(http.StatusInsufficientStorage) // which no client of a registry tries again
			return
		}
		// What was sent arrives. Without a Done of its own, the proxy would look at the connection.
		ctx, done := context.WithCancel(context.WithoutCancel(q.Context()))
		defer done()
		proxy.ServeHTTP(w, q.WithContext(ctx))
	})
	must(t, l.open(freeport.Keep(t)))
	t.Cleanup(func() { l.server.Close() })
	return l
}

// open has the line listen at an address.
func (l *Line) open(at string) error {
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	l.server = httptest.NewUnstartedServer(l.handler)
	if err := l.server.Listener.Close(); err != nil {
		return err
	}
	l.server.Listener = listener
	l.server.Start()
	l.At = listener.Addr().String()
	return nil
}

func (l *Line) passes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left--
	}
	if l.left == 0 {
		l.kill()
		return false
	}
	return true
}

// CutAt has the line cut at a request, and kill called; what it returns mends it, once all
// has arrived that was under way. Its connections end with it: a request of the publisher
// that was cut may still be in one of them, and must not arrive when the line is mended.
func (l *Line) CutAt(request int, kill func()) (mend func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.kill = request, kill
	return func() error {
		l.server.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left = -1
		return l.open(l.At)
	}
}

// Later lets so much time pass that no reservation of the dead is honoured any more.
func (f *Fleet) Later(l *Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Now = f.Now.Add(reserve.Honored + time.Hour)
	l.now = f.Now
}
