// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/httpserver"
)

// Server answers GET /metrics on an address of the loopback interface, and nothing
// else. Its zero value with Read set answers nowhere yet.
type Server struct {
	Read func() ([]byte, error) // the text to answer with

	address string
	stop    func()
}

// Listen answers on an address from now on, and no longer on the one before; "" is
// nowhere. It is for one goroutine at a time.
func (s *Server) Listen(address string) error {
	if address == s.address {
		return nil
	}
	s.Close()
	if address == "" {
		return nil
	}
	l, err := listen(address)
	if err != nil {
		return fmt.Errorf("listen for readers of metrics: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = httpserver.Serve(ctx, l, s, httpserver.Options{Conns: 16, PerClient: 16}) // it ends when it is told to
	}()
	s.address, s.stop = address, func() { cancel(); <-ended }
	return nil
}

// Close ends what is answered.
func (s *Server) Close() {
	if s.stop != nil {
		s.stop()
	}
	s.address, s.stop = "", nil
}

// listen refuses what others could reach, whatever the overlay says: the signature
// says who wrote it, not that it is wise.
func listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return nil, fmt.Errorf("%q is not an address of the loopback interface", address)
	}
	return net.Listen("tcp", at.String())
}

// ServeHTTP answers a request that names this machine as its host. A web page that
// had its name lead to 127.0.0.1 could read what others may not, otherwise.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !ownName(r.Host):
		http.Error(w, "ask by an address of this machine's loopback interface", http.StatusForbidden)
		return
	case r.URL.Path != "/metrics":
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "GET only", http.StatusMethodNotAllowed)
		return
	}
	text, err := s.Read()
	if err != nil {
		http.Error(w, "there are no metrics yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}
