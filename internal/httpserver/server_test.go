// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start serves h and returns the address.
func start(t *testing.T, h http.HandlerFunc, o Options) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h, o) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Minute):
			t.Error("it does not end")
		}
	})
	return l.Addr().String()
}

// TestClientsThatDoNotRead ask for much and take nothing: each is given up, and
// meanwhile others are answered.
func TestClientsThatDoNotRead(t *testing.T) {
	ended := make(chan error, 100)
	addr := start(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/small" {
			_, _ = io.WriteString(w, "here")
			return
		}
		_, err := io.CopyN(w, zeros{}, 1<<30)
		ended <- err
	}, Options{Stall: time.Second, PerClient: 8})
	const stalled = 4
	for range stalled {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprint(c, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	if resp, err := http.Get("http://" + addr + "/small"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("meanwhile: %v", err)
	} else {
		resp.Body.Close()
	}
	for range stalled {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("all was taken")
			}
		case <-time.After(5 * time.Minute):
			t.Fatal("a client that takes nothing is waited for")
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func ask(c net.Conn) error {
	if _, err := fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 12))
	return err
}

func TestUsers(t *testing.T) {
	name := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(name, []byte("node:secret\nother:word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := start(t, func(http.ResponseWriter, *http.Request) {}, Options{UsersFile: name})
	for pair, want := range map[string]int{"node:secret": 200, "other:word": 200, "node:word": 401, "node:": 401, ":": 401, "": 401} {
		req, err := http.NewRequest(http.MethodGet, "http://"+addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user, password, ok := strings.Cut(pair, ":"); ok {
			req.SetBasicAuth(user, password)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", pair, resp.StatusCode, want)
		}
	}
	for what, o := range map[string]Options{
		"an open file":             {UsersFile: write(t, "node:secret\n", 0o644)},
		"no password":              {UsersFile: write(t, "node\n", 0o600)},
		"an empty file":            {UsersFile: write(t, "", 0o600)},
		"client CA without TLS":    {ClientCA: name},
		"a key that all can read":  {CertFile: name, KeyFile: write(t, "k", 0o644)},
		"a certificate that is no": {CertFile: name, KeyFile: name},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := Serve(t.Context(), l, nil, o); err == nil {
			t.Errorf("%s was taken", what)
		}
		_ = l.Close()
	}
}

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestLog has one line for each request, also for those that are not let through.
func TestLog(t *testing.T) {
	lines := make(chan Request, 10)
	users := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(users, []byte("u:p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := start(t, func(w http.ResponseWriter, req *http.Request) { http.ServeFile(w, req, file) },
		Options{UsersFile: users, Log: func(r Request) { lines <- r }})
	for _, user := range []string{"u", "nobody"} {
		req, err := http.NewRequest(http.MethodGet, "http://"+addr+"/v2/x%0Ay/"+strings.Repeat("z", 300), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(user, "p")
		req.Header.Set("User-Agent", "caisson-agent/1 (node n1)")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // only its length matters, and the server says it
		resp.Body.Close()
	}
	good, bad := <-lines, <-lines
	if good.Status != 200 || good.Bytes != 100_000 || bad.Status != 401 || bad.Bytes == 0 || bad.Agent != "caisson-agent/1 (node n1)" || len(good.Path) != maxLogged {
		t.Errorf("%+v\n%+v", good, bad)
	}
	if text := good.String(); !strings.HasPrefix(text, good.Time.UTC().Format(time.RFC3339)+" 127.0.0.1:") || !strings.Contains(text, " 200 100000 B ") || !strings.HasSuffix(text, " caisson-agent/1 (node n1)") {
		t.Errorf("%q", text)
	}
}

// TestRequestsFinish: what is being answered when the server is to end is answered
// whole before Serve returns, since the program ends then.
func TestRequestsFinish(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	goOn := make(chan struct{})
	done, answer := make(chan error, 1), make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			<-goOn
			_, _ = io.WriteString(w, "all of it") // the client tells
		}), Options{})
	}()
	go func() {
		resp, err := http.Get("http://" + l.Addr().String())
		if err == nil {
			defer resp.Body.Close()
			var body []byte
			if body, err = io.ReadAll(resp.Body); err == nil && string(body) != "all of it" {
				err = fmt.Errorf("answered %q", body)
			}
		}
		answer <- err
	}()
	select {
	case err := <-done:
		t.Errorf("it returned during a request: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(goOn)
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
