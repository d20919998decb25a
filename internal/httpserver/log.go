// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Request is a request that was answered, for a log. Path and Agent are what a
// stranger wrote.
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
	text := fmt.Sprintf("%s %s %s %s %d %d B %s", r.Time.UTC().Format(time.RFC3339), r.Remote, r.Method, r.Path, r.Status, r.Bytes, r.Took.Round(time.Millisecond))
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
