// SPDX-License-Identifier: Apache-2.0

package server

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// Streams of events that may be open at once: in all, and for one who asks. An open page
// has one.
const (
	maxStreams    = 256
	clientStreams = 32
)

// places bound how many there are of something at a time, in all and for one client.
type places struct {
	most, each int

	mu    sync.Mutex
	taken int
	of    map[string]int // by client
}

func newPlaces(most, each int) *places {
	return &places{most: most, each: each, of: map[string]int{}}
}

// take takes a place, which give gives back. Where there is none, all says that nobody
// gets one, and not this client alone.
func (p *places) take(client string) (give func(), all, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[client] >= p.each {
		return nil, false, false
	}
	if p.taken >= p.most {
		return nil, true, false
	}
	p.taken++
	p.of[client]++
	return func() { p.give(client) }, false, true
}

func (p *places) give(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[client]--; p.of[client] == 0 {
		delete(p.of, client)
	}
}

// events tells a browser that something changed; what it is, it asks for.
func (s *Server) events(w http.ResponseWriter, req *http.Request) {
	who, says := client(req), "this address"
	if c := callerOf(req); s.o.Tokens != nil { // many may come from one address, by a proxy
		who, says = "token "+c.Name, "the token of "+c.Name
	}
	give, all, ok := s.streams.take(who)
	switch {
	case !ok && all:
		s.fail(w, http.StatusServiceUnavailable, "streams", "%d streams of events are open, which is the most", maxStreams)
		return
	case !ok:
		s.fail(w, http.StatusTooManyRequests, "streams", "%d streams of events are open for %s, which is the most: close one", clientStreams, says)
		return
	}
	defer give()
	changes, stop := s.o.Hub.Watch()
	defer stop()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events until there are many
	send := func(text string) bool {
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
