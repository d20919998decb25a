// SPDX-License-Identifier: Apache-2.0

package updates

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"

	"github.com/caisson-os/caisson/oci/registry"
)

// server serves what peers publish, as files and as a registry, and a daemon of rsync behind
// it; it counts what goes either way.
type server struct {
	files, daemon net.Listener
	http          http.Server
	bytes         atomic.Int64
}

// serve begins for a directory that has www, registry, and a socket of rsync's at a port.
func serve(dir string, rsync string) (s *server, err error) {
	s = &server{}
	if s.files, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if s.daemon, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	layout, err := registry.Handler(filepath.Join(dir, "registry"))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", layout)
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(dir, "www"))))
	s.http.Handler = mux
	go s.http.Serve(counted{s.files, &s.bytes}) // ends with Close
	go s.forward(rsync)
	return s, nil
}

// Close ends it.
func (s *server) Close() {
	_ = s.http.Close()   // nobody asks any more
	_ = s.daemon.Close() // nobody asks any more
}

// forward connects each who comes with the daemon of rsync.
func (s *server) forward(to string) {
	for {
		c, err := (counted{s.daemon, &s.bytes}).Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer c.Close() // both ways are over
			d, err := net.Dial("tcp", to)
			if err != nil {
				return // the client says so
			}
			go func() {
				_, _ = io.Copy(d, c)              // the client says what is wrong
				_ = d.(*net.TCPConn).CloseWrite() // the other way goes on
			}()
			_, _ = io.Copy(c, d) // the client says what is wrong
			_ = d.Close()        // both ways are over
		}()
	}
}

// counted counts what goes through the connections of a listener.
type counted struct {
	net.Listener
	bytes *atomic.Int64
}

func (l counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return counting{c, l.bytes}, err
}

type counting struct {
	net.Conn
	bytes *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c counting) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p))) // before anybody has it, and knows that all came
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n - len(p)))
	return n, err
}
