// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/require"
)

// TestServe serves a layout until a signal ends it.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	r, err := registry.Open("oci:"+dir, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := oci.Describe("text/plain", []byte("hello"))
	if err := r.PutData(t.Context(), "layer", d); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	go func() { done <- httpserver.Serve(ctx, l, h, httpserver.Options{}) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/v2/any/prefix/layer/blobs/" + d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "hello" {
		t.Errorf("GET = %q, %v", body, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

// TestServeKnowsWhoIsUnknown: a machine asks by all its names and finds nothing.
func TestServeKnowsWhoIsUnknown(t *testing.T) {
	require.Slow(t)
	s := newShelf(t)
	if err := s.reg.PutData(t.Context(), "node", oci.Describe("text/plain", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	talk, line := io.Pipe()
	answer, address := io.Pipe()
	a := newApp(address, line)
	root := a.root()
	root.SetArgs([]string{"serve", s.ref, "--listen", "127.0.0.1:0"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- root.ExecuteContext(ctx)
		_ = line.Close() // nothing more is said
	}()
	addr, err := bufio.NewReader(answer).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(talk); lines.Scan(); {
			said <- lines.Text()
		}
		close(said)
	}()
	for _, tag := range []string{"node1", "mac-525400123456"} {
		req, err := http.NewRequest(http.MethodGet, "http://"+strings.TrimSpace(addr)+"/v2/metal-a/node/manifests/"+tag, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "caisson-agent/1 (node node1)\u202e")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for _, want := range []string{`serving oci:`, `Z 127\.0\.0\.1:\d+ GET /v2/metal-a/node/manifests/node1 404 \d+ B \S+ caisson-agent/1 \(node node1\)\?$`,
		`mac-525400123456 404`, `unknown machine at 127.0.0.1: - \{name: node1, match: \{macs: \["52:54:00:12:34:56"\]\}\}`} {
		select {
		case got := <-said:
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%q, want %q", got, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("no line for %q", want)
		}
	}
	file, err := unknownList(s.ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{s.ref, file} {
		out, err := s.run("unknown", of)
		if want := `- {name: node1, match: {macs: ["52:54:00:12:34:56"]}}`; err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %q, %v; want %s", of, out, err, want)
		}
	}
	// The fleet's service shows it where it knows the layout: also where it reads the fleet from a server.
	for _, v := range []serving{{from: s.ref}, {from: "registry.example/metal", unknown: s.ref}} {
		o, err := v.options(a)
		if err != nil {
			t.Fatal(err)
		}
		if list, err := o.Unknown(); err != nil || len(list) != 1 || list[0].ID() != "52:54:00:12:34:56" {
			t.Errorf("%s: %+v, %v", v.from, list, err)
		}
	}
	for text, want := range map[string]string{"registry.example/metal": "is not an OCI layout", "oci:" + t.TempDir() + "/none": "none"} {
		v := serving{from: s.ref, unknown: text}
		if _, err := v.options(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--unknown %s: %v", text, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestRelay relays a registry until a signal ends it, asks it for content once, and lists who found no
// overlay: the registry sees the relay alone, which is not a machine.
func TestRelay(t *testing.T) {
	require.Slow(t)
	s := newShelf(t)
	d := oci.Describe("text/plain", []byte("hello"))
	if err := s.reg.PutData(t.Context(), "layer", d); err != nil {
		t.Fatal(err)
	}
	h, err := registry.Handler(strings.TrimPrefix(s.ref, "oci:"))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := unknown.Open(filepath.Join(t.TempDir(), "seen"), func(m unknown.Machine) { t.Errorf("the registry lists %s", m.Says()) })
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, d.Digest) {
			asked.Add(1)
		}
		if err := seen.Answered("127.0.0.1", req.UserAgent(), req.URL.Path, false, time.Now()); err != nil {
			t.Error(err)
		}
		h.ServeHTTP(w, req)
	}))
	defer behind.Close()
	ctx, cancel := context.WithCancel(t.Context())
	answer, address := io.Pipe()
	talk, line := io.Pipe()
	root, file := newApp(address, line).root(), filepath.Join(t.TempDir(), "unknown.json")
	root.SetArgs([]string{"fleet", "relay", behind.Listener.Addr().String() + "/metal", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--fresh", "1h", "--unknown", file})
	done := make(chan error, 1)
	go func() {
		done <- root.ExecuteContext(ctx)
		_ = line.Close() // nothing more is said
	}()
	listed := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(talk); lines.Scan(); {
			if strings.Contains(lines.Text(), "unknown machine at ") {
				listed <- lines.Text()
			}
		}
	}()
	addr, err := bufio.NewReader(answer).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		resp, err := http.Get("http://" + strings.TrimSpace(addr) + "/v2/metal/layer/blobs/" + d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != "hello" {
			t.Errorf("%q, %v", body, err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the registry was asked %d times", n)
	}
	resp, err := http.Get("http://" + strings.TrimSpace(addr) + "/v2/metal/node/manifests/mac-525400123456")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // only its status counts
	select {
	case got := <-listed:
		if list, err := s.run("unknown", file); err != nil || !strings.Contains(got, "caisson unknown "+file) || !strings.HasPrefix(list, "- {name: new-525400123456, ") {
			t.Errorf("%d, %s, then %q, %v", resp.StatusCode, got, list, err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("nothing is listed")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestEachServerHasItsOwnPort: one machine can run all of them, and clients look where the
// fleet's service is.
func TestEachServerHasItsOwnPort(t *testing.T) {
	ports := map[string]string{}
	for verb, flag := range map[string]string{"serve": "listen", "fleet serve": "listen", "fleet relay": "listen", "netboot serve": "http"} {
		c, _, err := newApp(io.Discard, io.Discard).root().Find(strings.Fields(verb))
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(c.Flags().Lookup(flag).DefValue)
		if err != nil || ports[port] != "" {
			t.Errorf("%s: port %s, %v; it is that of %s", verb, port, err, ports[port])
		}
		ports[port] = verb
	}
	if u, err := url.Parse(query.UsualService); err != nil || ports[u.Port()] != "fleet serve" {
		t.Errorf("the verbs ask %s, where %s is", query.UsualService, ports[u.Port()])
	}
}
