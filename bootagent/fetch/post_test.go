// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestPost sends a report over TLS by the site's authority, from a process without
// privileges and with a token that only root can read.
func TestPost(t *testing.T) {
	require.Root(t)
	var status int
	var uid string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || string(body) != "signed" || req.URL.Path != post.ReportPath || req.Header.Get("Authorization") != "Bearer let-me" || req.Header.Get("Caisson-Proof") != "p" || req.Header.Get("User-Agent") != "caisson-agent/1" {
			t.Errorf("%s %q %v: %q, %v", req.URL.Path, req.Header.Get("Authorization"), req.Header, body, err)
		}
		if uid == "" {
			uid = look(t)["Uid"]
		}
		w.Header().Set(spec.NonceHeader, "0a0b")
		if status/100 == 3 {
			w.Header().Set("Location", "https://elsewhere.example/")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "number 7\x1b[2J was taken\n"+strings.Repeat("x", 1<<20)) // the answer is read in part
	}))
	defer server.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, track.ReportToken), []byte("let-me\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	var answer bytes.Buffer
	tell := func(cas ...string) error {
		answer.Reset()
		return Post(t.Context(), spec.Bootstrap{CAs: cas}, track.Way{Credentials: dir, Silence: 20 * time.Second, Agent: "caisson-agent/1", Clock: trust.Clock{RTC: time.Now()}}, post.Letter{URL: server.URL + post.ReportPath, Header: map[string]string{"Caisson-Proof": "p"}, Body: []byte("signed"), Token: true, Answer: &answer})
	}
	for status = range map[int]bool{200: true, 204: true} {
		if err := tell(ca); err != nil || answer.String() != "0a0b" {
			t.Errorf("%d: %v, %q", status, err, answer.String())
		}
	}
	if uid != "65534 65534 65534 65534" {
		t.Errorf("the process that asks is of user %s", uid)
	}
	for code, final := range map[int]bool{400: true, 409: true, 413: true, 422: true, 307: false, 401: false, 403: false, 404: false, 429: false, 500: false, 503: false} {
		status = code
		err := tell(ca)
		if err == nil || errors.Is(err, post.ErrRefused) != final {
			t.Errorf("%d: %v, final %v", code, err, final)
		} else if strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 400 {
			t.Errorf("%d: %q", code, err)
		}
	}
	if err := tell(); err == nil || errors.Is(err, post.ErrRefused) {
		t.Errorf("a service of an unknown authority: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, track.ReportToken), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tell(ca); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("a token for all to read: %v", err)
	}
}

// TestATokenIsNotForTheWire: without TLS a listener could report with it.
func TestATokenIsNotForTheWire(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, track.ReportToken), []byte("let-me\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{"http://192.0.2.1:8080": "without TLS", "http://127.0.0.1:8080": "", "https://192.0.2.1:8080": ""} {
		_, req, err := letter(t.Context(), request{Way: track.Way{Credentials: dir}, Post: &post.Letter{URL: where + post.ReportPath, Token: true}}, filepath.Join(dir, track.ReportToken))
		switch {
		case want == "" && (err != nil || req.Header.Get("Authorization") != "Bearer let-me"):
			t.Errorf("%s: %v", where, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", where, err)
		}
	}
}

// TestATokenIsForOneService: a letter to any other service has none.
func TestATokenIsForOneService(t *testing.T) {
	require.Root(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if len(req.Header["Authorization"]) != 0 {
			t.Error("the token went to another service")
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"kind":"all_slots_full","value":"1 of 1 slots are held,\nby n2"}`) // the answer is read
	}))
	defer server.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, track.ReportToken), []byte("let-me\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Post(t.Context(), spec.Bootstrap{}, track.Way{Credentials: dir, Silence: 20 * time.Second, Clock: trust.Clock{RTC: time.Now()}}, post.Letter{URL: server.URL, Body: []byte("{}")})
	if err == nil || !strings.Contains(err.Error(), "answers 409: 1 of 1 slots are held,") || strings.Contains(err.Error(), "kind") {
		t.Error(err)
	}
}

// A token that came as a secret is tried first, and the one that the node was installed with
// where it is refused.
func TestTheTokenThatCameAsASecret(t *testing.T) {
	require.Root(t)
	var good string
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen = append(seen, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
		if seen[len(seen)-1] != good {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	installed, own := t.TempDir(), t.TempDir()
	for dir, token := range map[string]string{installed: "old\n", own: "new"} {
		if err := os.WriteFile(filepath.Join(dir, track.ReportToken), []byte(token), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	way := track.Way{Credentials: installed, Own: own, Silence: 20 * time.Second, Clock: trust.Clock{RTC: time.Now()}}
	for _, c := range []struct {
		good string
		seen []string
	}{{"new", []string{"new"}}, {"old", []string{"new", "old"}}, {"another", []string{"new", "old"}}} {
		good, seen = c.good, nil
		err := Post(t.Context(), spec.Bootstrap{}, way, post.Letter{URL: server.URL + post.ReportPath, Body: []byte("{}"), Token: true})
		if (err == nil) != (c.good != "another") || !slices.Equal(seen, c.seen) {
			t.Errorf("good is %s: %v, it was shown %q", c.good, err, seen)
		}
	}
}
