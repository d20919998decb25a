// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// atOnce has all that is asked from now on come at one time, however long it takes: a
// bucket that gains something meanwhile lets the one through that comes then.
func (s *site) atOnce() {
	now := time.Now()
	s.server.limits.now = func() time.Time { return now }
}

// TestLimits: a bucket that is empty gains one after its time, and never more than it holds.
func TestLimits(t *testing.T) {
	s := newSite(t, published("n1"), false)
	now := time.Now()
	s.server.limits.now = func() time.Time { return now }
	guesses := func() (n int) {
		for s.server.limits.guess("192.0.2.1") {
			n++
		}
		return n
	}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 10}, {5 * time.Second, 0}, {2 * time.Second, 1}, {6 * time.Second, 1}, {time.Hour, 10}} {
		now = now.Add(c.after)
		if got := guesses(); got != c.want {
			t.Errorf("after %s: %d guesses, want %d", c.after, got, c.want)
		}
	}
}

// reportsFrom posts a report from an address, past the network.
func (s *site) reportsFrom(address string, raw []byte) int {
	s.Helper()
	req := httptest.NewRequest(http.MethodPost, s.url+"/v1/report", bytes.NewReader(raw))
	req.RemoteAddr = address
	w := httptest.NewRecorder()
	s.server.ServeHTTP(w, req)
	return w.Code
}

// claims is a report that names a key and proves nothing.
func claims(key string) []byte {
	return fmt.Appendf(nil, `{"payload":"eA==","payloadType":"x","signatures":[{"keyid":%q,"sig":"eA=="}]}`, base64.StdEncoding.EncodeToString([]byte(key)))
}

// TestStrangersKeepNobodyOut: what is remembered of those who ask is bounded, whatever
// they say of themselves, and where it is full no other is refused.
func TestStrangersKeepNobodyOut(t *testing.T) {
	s := newSite(t, published("n1", "n2"), false)
	s.server.limits.most = 50
	one := newKey(t)
	if got := s.reportsFrom("192.0.2.1:1", sealed(t, one, "n1", 1, nil)); got != http.StatusNoContent {
		t.Fatal(got)
	}
	for i := range 500 {
		s.reportsFrom(fmt.Sprintf("198.51.100.%d:1", i%100), claims(strings.Repeat("x", 5000)+fmt.Sprint(i)))
	}
	size := 0
	for name := range s.server.limits.all {
		size += len(name)
	}
	if n := len(s.server.limits.all); n > 50 || size > 50*200 {
		t.Errorf("%d bytes are kept of %d who asked", size, n)
	}
	if got := s.reportsFrom("192.0.2.2:1", sealed(t, newKey(t), "n2", 1, nil)); got != http.StatusNoContent {
		t.Errorf("the first report of a node: %d", got)
	}
	if got := s.reportsFrom("192.0.2.1:1", sealed(t, one, "n1", 2, nil)); got != http.StatusNoContent {
		t.Errorf("the next report of another: %d", got)
	}
}

// TestKeysWithoutEnd: keys that are made for it give an address no more reports, and its
// nodes no fewer.
func TestKeysWithoutEnd(t *testing.T) {
	s := newSite(t, published("n1"), false)
	one := newKey(t)
	if got := s.reportsFrom("[2001:db8::1]:1", sealed(t, one, "n1", 1, nil)); got != http.StatusNoContent {
		t.Fatal(got)
	}
	s.atOnce()
	last := 0
	for i := range strangers + 1 {
		last = s.reportsFrom(fmt.Sprintf("[2001:db8::%x]:1", i%500), claims(fmt.Sprint(i)))
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of very many: %d", last)
	}
	if got := s.reportsFrom("[2001:db8::1]:1", sealed(t, one, "n1", 2, nil)); got != http.StatusNoContent {
		t.Errorf("a node at that address: %d", got)
	}
}

// TestSlotsWithoutEnd: each request for a slot costs a signature that is verified and a
// write, so an address has only so many.
func TestSlotsWithoutEnd(t *testing.T) {
	s := newSite(t, published("n1"), false)
	ask := func(address string) int {
		req := httptest.NewRequest(http.MethodPost, s.url+"/v1/pre-reboot", strings.NewReader(`{"client_params":{"id":"n1","group":"default"}}`))
		req.Header.Set("Fleet-Lock-Protocol", "true")
		req.RemoteAddr = address
		w := httptest.NewRecorder()
		s.server.ServeHTTP(w, req)
		return w.Code
	}
	s.atOnce()
	last := 0
	for range 1001 {
		last = ask("192.0.2.1:1")
	}
	if other := ask("192.0.2.2:1"); last != http.StatusTooManyRequests || other != http.StatusForbidden {
		t.Errorf("the last of very many: %d; one of another address: %d", last, other)
	}
}
