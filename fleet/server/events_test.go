// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/people"
)

// stream opens a stream of events, which ends when close is called.
func (s *site) stream(token string) (status int, text string, end func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/v1/events", nil)
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	end = func() { cancel(); resp.Body.Close() }
	s.Cleanup(end)
	if resp.StatusCode == http.StatusOK {
		return resp.StatusCode, "", end
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(body), end
}

// TestOneReaderTakesNotAllStreams: who opens as many as he can keeps no other out, by
// whatever number of addresses or pages, and has his places again when he closes them.
func TestOneReaderTakesNotAllStreams(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	var first func()
	for i := range clientStreams {
		status, text, end := s.stream(s.tokens[people.Reader])
		if status != http.StatusOK {
			t.Fatalf("stream %d: %d %s", i, status, text)
		}
		if i == 0 {
			first = end
		}
	}
	if status, text, _ := s.stream(s.tokens[people.Reader]); status != http.StatusTooManyRequests || !strings.Contains(text, "32 streams of events are open for the token of a-reader") {
		t.Errorf("one more: %d %s", status, text)
	}
	if status, text, _ := s.stream(s.tokens[people.Operator]); status != http.StatusOK {
		t.Errorf("another one: %d %s", status, text)
	}
	var others []func()
	for {
		give, err := s.server.streams.Take(fmt.Sprint("other ", len(others)))
		if err != nil {
			break
		}
		others = append(others, give)
	}
	if status, text, _ := s.stream(s.tokens[people.Operator]); status != http.StatusServiceUnavailable || !strings.Contains(text, "streams of events are open") {
		t.Errorf("one above all: %d %s", status, text)
	}
	for _, give := range others {
		give()
	}
	first()
	for late := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, text, _ := s.stream(s.tokens[people.Reader])
		if status == http.StatusOK {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("after one is closed: %d %s", status, text)
		}
	}
}

// TestStreamsByAddress: where there are no tokens, an address is one reader.
func TestStreamsByAddress(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	for range clientStreams {
		if status, text, _ := s.stream(""); status != http.StatusOK {
			t.Fatal(status, text)
		}
	}
	if status, text, _ := s.stream(""); status != http.StatusTooManyRequests || !strings.Contains(text, "for this address") {
		t.Errorf("one more: %d %s", status, text)
	}
	give, err := s.server.streams.Take("192.0.2.1")
	if err != nil {
		t.Fatal("another address has none")
	}
	give()
}
