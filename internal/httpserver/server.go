// SPDX-License-Identifier: Apache-2.0

// Package httpserver runs a read-only HTTP server that strangers may reach: every
// wait has an end, and no client can keep the others out.
//
// It does not know what is served. It imports internal/ownfiles; the verbs that
// serve import it.
package httpserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/ownfiles"
)

// Options say who may ask, and for how long. The zero value is everybody, without
// TLS, within the default limits.
type Options struct {
	TLS               *tls.Config   // TLS, in the place of CertFile and KeyFile
	CertFile, KeyFile string        // TLS, when given; the key readable by its owner only
	ClientCA          string        // file of PEM authorities, one of which must have signed a client's certificate
	UsersFile         string        // file of "user:password" lines, one of which a client must know; readable by its owner only
	Stall             time.Duration // how long a client may not read its answer; 0 is 30 s
	Idle              time.Duration // how long a connection may wait for a request; 0 is [UsualIdle]
	Conns             int           // connections at once; 0 is [UsualConns], see [Options.Most]
	PerClient         int           // of these from one address; 0 is [UsualPerClient]
	Knows             bool          // the handler calls [Knows]: a quarter of the connections are kept for those whom it knows
	Log               func(Request) // gets every request, from several goroutines; nil keeps no log
}

// Check says what is wrong with the files of Options, before anything listens.
func (o Options) Check() error {
	if err := o.limits(); err != nil {
		return err
	}
	if _, err := o.tls(); err != nil {
		return err
	}
	_, err := o.users(nil)
	return err
}

// Serve answers on l until ctx ends, then lets requests finish for a while.
func Serve(ctx context.Context, l net.Listener, h http.Handler, o Options) error {
	o = o.complete()
	config, err := o.tls()
	if err != nil {
		return err
	}
	if h, err = o.users(h); err != nil {
		return err
	}
	if o.Log != nil {
		h = logged(h, o.Log) // also those whom users does not let through
	}
	limited := &listener{Listener: l, stall: o.Stall, places: newPlaces(o)}
	s := &http.Server{
		Handler:           busy(h),
		TLSConfig:         config,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       o.Idle,
		MaxHeaderBytes:    16 << 10,
		ConnState:         idle,
		ConnContext:       withConn,
	}
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(grace) // after the grace the program ends all the same
	})
	defer stop()
	if config != nil {
		err = s.ServeTLS(limited, "", "")
	} else {
		err = s.Serve(limited)
	}
	if errors.Is(err, http.ErrServerClosed) {
		<-finished // Serve returns as Shutdown begins
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

func (o Options) tls() (*tls.Config, error) {
	if o.TLS != nil {
		return o.TLS, nil
	}
	if o.CertFile == "" {
		if o.ClientCA != "" {
			return nil, errors.New("client certificates need TLS")
		}
		return nil, nil
	}
	cert, err := os.ReadFile(o.CertFile)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	key, err := ownfiles.ReadLinked(o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("key of the certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", o.CertFile, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if o.ClientCA == "" {
		return config, nil
	}
	authorities, err := os.ReadFile(o.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("authorities of clients: %w", err)
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no PEM certificate", o.ClientCA)
	}
	return config, nil
}

// users lets only those through who know a line of the file.
func (o Options) users(h http.Handler) (http.Handler, error) {
	if o.UsersFile == "" {
		return known(h, o.ClientCA != ""), nil
	}
	text, err := ownfiles.ReadLinked(o.UsersFile)
	if err != nil {
		return nil, fmt.Errorf("users: %w", err)
	}
	var known [][32]byte
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if user, password, ok := strings.Cut(line, ":"); !ok || user == "" || password == "" {
			return nil, fmt.Errorf("%s:%d: not user:password", o.UsersFile, i+1)
		}
		known = append(known, sha256.Sum256([]byte(line)))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		said, good := sha256.Sum256([]byte(user+":"+password)), 0
		for _, k := range known {
			good |= subtle.ConstantTimeCompare(said[:], k[:])
		}
		if good == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="caisson"`)
			http.Error(w, "no such user and password", http.StatusUnauthorized)
			return
		}
		Knows(req)
		h.ServeHTTP(w, req)
	}), nil
}

// known knows each client that has come so far, where its certificate was asked for.
func known(h http.Handler, asked bool) http.Handler {
	if !asked {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		Knows(req)
		h.ServeHTTP(w, req)
	})
}

// Request is a request that was answered, for a log. Path and Agent were written by a
// stranger.
type Request struct {
	Time   time.Time // when it came
	Remote string    // host:port
	Method string
	Path   string
	Agent  string // User-Agent
	Status int
	Bytes  int64
	Took   time.Duration
}

// String returns the request as one line, without what a log around it adds.
func (r Request) String() string {
	text := fmt.Sprintf("%s %s %s %s %d %d B %s", r.Time.UTC().Format(time.RFC3339), r.Remote, r.Method, r.Path,
		r.Status, r.Bytes, r.Took.Round(time.Millisecond))
	if r.Agent != "" {
		text += " " + r.Agent
	}
	return text
}

// maxLogged is how much of a path or an agent's name is kept.
const maxLogged = 200

// logged tells log of each request, once it is answered.
func logged(h http.Handler, log func(Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r := Request{Time: time.Now(), Remote: req.RemoteAddr, Method: req.Method, Path: short(req.URL.Path), Agent: short(req.UserAgent())}
		c := &counted{ResponseWriter: w}
		defer func() { // also when the handler ends the connection by a panic
			r.Status, r.Bytes, r.Took = cmp.Or(c.status, http.StatusOK), c.bytes, time.Since(r.Time)
			log(r)
		}()
		h.ServeHTTP(c, req)
	})
}

func short(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxLogged)], "?") }

// counted counts what an answer has. It hands files on as they are, so that the
// kernel still sends them by itself, see sendfile(2).
type counted struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counted) WriteHeader(status int) {
	if c.status == 0 && status >= 200 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

func (c *counted) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseWriter, from)
	c.bytes += n
	return n, err
}

// Unwrap is for [http.ResponseController].
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }
