// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// free returns an address of the loopback interface on which nobody listens. It is not the
// one that all others take, too: the kernel could give the port to them meanwhile.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.83.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the number is wanted
	return l.Addr().String()
}

func TestServer(t *testing.T) {
	var text []byte
	s := Server{Read: func() ([]byte, error) {
		if text == nil {
			return nil, errors.New("not yet")
		}
		return text, nil
	}}
	defer s.Close()
	first := free(t)
	if err := s.Listen(first); err != nil {
		t.Fatal(err)
	}
	ask := func(address, method, path, host string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close() // only read
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, answer.Header.Get("Content-Type") + " " + string(body)
	}
	if code, body := ask(first, "GET", "/metrics", ""); code != http.StatusServiceUnavailable {
		t.Error(code, body)
	}
	text = []byte("caisson_generation 7\n")
	for _, test := range []struct {
		method, path, host string
		want               int
	}{
		{"GET", "/metrics", "", 200}, {"HEAD", "/metrics", "", 200}, {"GET", "/metrics", "localhost", 200}, {"GET", "/metrics", "LOCALHOST:1", 200}, {"GET", "/metrics", "[::1]:9469", 200}, {"GET", "/metrics", "[::1]", 200},
		{"GET", "/", "", 404}, {"GET", "/metrics/x", "", 404}, {"POST", "/metrics", "", 405},
		{"GET", "/metrics", "evil.example", 403}, {"GET", "/metrics", "evil.example:9469", 403}, {"GET", "/metrics", "localhost.evil.example", 403}, {"GET", "/metrics", "192.0.2.1:9469", 403},
	} {
		if code, body := ask(first, test.method, test.path, test.host); code != test.want {
			t.Errorf("%s %s of %q: %d, not %d: %s", test.method, test.path, test.host, code, test.want, body)
		}
	}
	if _, body := ask(first, "GET", "/metrics", ""); body != "text/plain; version=0.0.4; charset=utf-8 "+string(text) {
		t.Errorf("%q", body)
	}

	second := free(t)
	for range 2 { // the second time nothing changes
		if err := s.Listen(second); err != nil {
			t.Fatal(err)
		}
		if code, body := ask(second, "GET", "/metrics", ""); code != 200 {
			t.Error(code, body)
		}
	}
	if code, _ := ask(first, "GET", "/metrics", ""); code != 0 {
		t.Errorf("the address before still answers: %d", code)
	}
	if err := s.Listen(""); err != nil {
		t.Fatal(err)
	}
	if code, _ := ask(second, "GET", "/metrics", ""); code != 0 {
		t.Errorf("it answers nowhere any more, but %d", code)
	}
}

// What others could reach is not listened on, even where an overlay says so, and an
// address that is taken is an error.
func TestServerListens(t *testing.T) {
	s := Server{Read: func() ([]byte, error) { return nil, nil }}
	defer s.Close()
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "localhost:0", "192.0.2.1:9469", "[::ffff:0.0.0.0]:0", "x"} {
		if err := s.Listen(address); err == nil || !strings.Contains(err.Error(), "not an address of the loopback interface") {
			t.Errorf("%s: %v", address, err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the test is over
	for range 2 {
		if err := s.Listen(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Error(err)
		}
	}
}
