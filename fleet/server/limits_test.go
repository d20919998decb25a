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
	s := newSite(t, rowsOf("n1"), false)
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
	s := newSite(t, rowsOf("n1", "n2"), false)
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

// TestClaimsSpendNobodysRate: what names a node's key and is not signed by it keeps no
// report of that node out, from its own address or another.
func TestClaimsSpendNobodysRate(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	one := newKey(t)
	if got := s.reportsFrom("192.0.2.1:1", sealed(t, one, "n1", 1, nil)); got != http.StatusNoContent {
		t.Fatal(got)
	}
	s.atOnce()
	for i := range 200 {
		if got := s.reportsFrom(fmt.Sprintf("192.0.2.%d:1", 1+i%2), claims(keyID(one))); got != http.StatusConflict {
			t.Fatal(got)
		}
	}
	for seq := range uint64(80) { // a full spool
		if got := s.reportsFrom("192.0.2.1:1", sealed(t, one, "n1", seq+2, nil)); got != http.StatusNoContent {
			t.Fatalf("report %d of the node: %d", seq+2, got)
		}
	}
	if got := s.reportsFrom("192.0.2.2:1", sealed(t, one, "n1", 99, nil)); got != http.StatusTooManyRequests {
		t.Errorf("the node from another address: %d", got)
	}
}

// TestKeysWithoutEnd: keys that are made for it give an address no more reports, and its
// nodes no fewer. All nodes behind a proxy may have new keys at once.
func TestKeysWithoutEnd(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	s.atOnce()
	for i := range 10_000 {
		if !s.server.limits.report("192.0.2.1", "", fmt.Sprint("n", i)) {
			t.Fatalf("node %d with a new key is refused", i)
		}
	}
	n := 0
	for s.server.limits.report("192.0.2.1", "", "n1") {
		n++
	}
	if n > 20 {
		t.Errorf("one node has %d new keys at once", n)
	}
	for n = 0; s.server.limits.report("192.0.2.1", "", fmt.Sprint("m", n)); {
		n++
	}
	if n > strangers-10_000 {
		t.Errorf("an address has %d new keys more", n)
	}
	for n = 0; s.server.limits.arrival("192.0.2.1"); {
		n++
	}
	if n != 20_000 {
		t.Errorf("an address sends %d reports at once", n)
	}
	if !s.server.limits.report("192.0.2.1", "n1", "n1") || !s.server.limits.arrival("192.0.2.2") || !s.server.limits.report("192.0.2.2", "", "n1") {
		t.Error("a node that is known, or at another address, is refused")
	}
	// By its signature, not by what it says of itself.
	raw := sealed(t, newKey(t), "n1", 1, nil)
	if got := s.reportsFrom("192.0.2.1:1", raw); got != http.StatusTooManyRequests {
		t.Errorf("a report where all are used up: %d", got)
	}
	if got := s.reportsFrom("192.0.2.2:1", raw); got != http.StatusNoContent {
		t.Errorf("from another address: %d", got)
	}
}

// TestSlotsWithoutEnd: each request for a slot costs a signature that is verified and a
// write, so an address has only so many.
func TestSlotsWithoutEnd(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
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
