// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/caisson-os/caisson/internal/httpserver"
)

// Streams of events that may be open at once: in all, and for one who asks. An open page
// has one.
const (
	maxStreams    = 256
	clientStreams = 32
)

// events tells a browser that something changed; what it is, it asks for.
func (s *Server) events(w http.ResponseWriter, req *http.Request) {
	who, says := client(req), "this address"
	if c := callerOf(req); s.o.Tokens != nil { // many may come from one address, by a proxy
		who, says = "token "+c.Name, "the token of "+c.Name
	}
	give, err := s.streams.Take(who)
	switch {
	case errors.Is(err, httpserver.ErrClient):
		s.fail(w, http.StatusTooManyRequests, "streams",
			"%d streams of events are open for %s, which is the most: close one", clientStreams, says)
		return
	case err != nil:
		s.fail(w, http.StatusServiceUnavailable, "streams", "%d streams of events are open, which is the most", maxStreams)
		return
	}
	defer give()
	changes, stop := s.o.Hub.Watch()
	defer stop()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events until there are many
	send := func(text string) bool {
		if s.o.Tokens != nil && !s.caller(req).Role.may(Reader) {
			return false // the session is over, or the token was taken away
		}
		_, err := io.WriteString(w, text)
		return err == nil && out.Flush() == nil
	}
	beat := time.NewTicker(20 * time.Second) // so that who is gone is noticed, and proxies do not cut
	defer beat.Stop()
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case <-req.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-beat.C:
			ok = send(": still here\n\n")
		case <-changes:
			ok = send("event: change\ndata: {}\n\n")
			select {
			case <-time.After(time.Second): // more often nobody reads
			case <-s.ctx.Done():
				return
			}
		}
	}
}
