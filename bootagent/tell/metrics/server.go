// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
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
		_ = httpserver.Serve(ctx, l, s, httpserver.Options{Conns: 16, PerClient: 16}) // it ends with the context
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

// Wanted returns where an overlay wants metrics: nowhere where it wants none, or wants
// them where they must not be, which is the error.
func Wanted(o *spec.Overlay) (spec.Metrics, error) {
	if o.Agent == nil || o.Agent.Metrics == nil {
		return spec.Metrics{}, nil
	}
	if err := rules.Metrics(*o.Agent.Metrics); err != nil {
		return spec.Metrics{}, fmt.Errorf("agent.metrics of the overlay: %w", err)
	}
	return *o.Agent.Metrics, nil
}

// Publish writes a text where it is wanted, and for the service, which answers at an
// address. root is the prefix of every path.
func Publish(root string, want spec.Metrics, text []byte) error {
	answered := filepath.Join(root, paths.RunMetrics)
	if want == (spec.Metrics{}) {
		return durable.Remove(answered)
	}
	err := durable.WriteFile(answered, text, 0o644)
	if want.File == "" {
		return err
	}
	fileErr := in(filepath.Join(root, want.File), func(dir safepath.Dir, name string) error {
		return dir.Put(name, safepath.Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid(), Content: text})
	})
	if fileErr != nil {
		err = errors.Join(err, fmt.Errorf("write metrics to %s: %w", want.File, fileErr))
	}
	return err
}

// Withdraw removes the file that metrics were written to.
func Withdraw(root, file string) error {
	if err := in(filepath.Join(root, file), safepath.Dir.Remove); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove metrics from %s: %w", file, err)
	}
	return nil
}

// in does something in the directory of a path, which may belong to who collects.
func in(path string, do func(dir safepath.Dir, name string) error) error {
	dir, err := safepath.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	return do(dir, filepath.Base(path))
}
