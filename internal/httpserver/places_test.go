// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
)

// from connects from an address of the loopback.
func from(t *testing.T, local, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
	c, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the test is over
	return c
}

// limited serves h like [Serve], with its places to look at.
func limited(t *testing.T, h http.HandlerFunc, o Options) (addr string, p *places) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	own := &listener{Listener: l, stall: o.complete().Stall, places: newPlaces(o.complete())}
	s := &http.Server{Handler: busy(h), ConnState: idle, ConnContext: withConn}
	go func() { _ = s.Serve(own) }() // it ends with the test
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String(), own.places
}

// wait are how many connections wait for a request.
func (p *places) wait() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.waiting[everybody]; l != nil {
		return l.Len()
	}
	return 0
}

// eventually waits for what takes a moment of the server.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// At the limit the connection ends that waits longest, be it that it said nothing, began
// a request, or has had its answer; and the new one is served.
func TestLongestWaitEnds(t *testing.T) {
	for _, o := range []Options{{Conns: 3, PerClient: 3}, {Conns: 100, PerClient: 3}} {
		addr, p := limited(t, func(http.ResponseWriter, *http.Request) {}, o)
		waits := func(n int) {
			t.Helper()
			eventually(t, fmt.Sprint(n, " do not wait"), func() bool { return p.wait() == n })
		}
		silent := from(t, "127.0.0.1", addr)
		waits(1)
		begun := from(t, "127.0.0.1", addr)
		if _, err := fmt.Fprint(begun, "GET / HTTP/1.1\r\nHo"); err != nil {
			t.Fatal(err)
		}
		waits(2)
		asked := from(t, "127.0.0.1", addr)
		if err := ask(asked); err != nil {
			t.Fatal(err)
		}
		waits(3)
		for i, longest := range []net.Conn{silent, begun, asked} {
			if err := ask(from(t, "127.0.0.1", addr)); err != nil {
				t.Fatalf("%+v: new connection %d: %v", o, i, err)
			}
			if err := longest.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, longest); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%+v: connection %d, which waits longest, goes on", o, i)
			}
			waits(3)
		}
	}
}

// What is being answered ends for nobody: one too many is refused, and places come back.
func TestTooMany(t *testing.T) {
	goOn, come := make(chan struct{}), make(chan struct{}, 10)
	addr := start(t, func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/long" {
			come <- struct{}{}
			<-goOn
		}
	}, Options{PerClient: 2})
	answers := make(chan error, 2)
	for range 2 {
		c := from(t, "127.0.0.1", addr)
		if _, err := fmt.Fprint(c, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := io.ReadFull(c, make([]byte, 12))
			answers <- err
		}()
		<-come
	}
	if err := ask(from(t, "127.0.0.1", addr)); err == nil {
		t.Error("a third connection was taken")
	}
	if err := ask(from(t, "127.0.0.2", addr)); err != nil {
		t.Errorf("another address: %v", err)
	}
	close(goOn)
	for range 2 {
		if err := <-answers; err != nil {
			t.Errorf("what was being answered: %v", err)
		}
	}
	eventually(t, "the places do not come back", func() bool { return ask(from(t, "127.0.0.1", addr)) == nil })
}

// Strangers at many addresses leave a quarter of the places to those whom the handler
// knows.
func TestStrangersLeavePlaces(t *testing.T) {
	goOn, come := make(chan struct{}), make(chan struct{}, 20)
	defer close(goOn)
	addr := start(t, func(_ http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/secret":
			Knows(req)
		case "/long":
			come <- struct{}{}
			<-goOn
		}
	}, Options{Conns: 8, PerClient: 8, Knows: true, Stall: time.Minute})
	known := from(t, "127.0.0.9", addr)
	if _, err := fmt.Fprint(known, "GET /secret HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, known); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		c := from(t, fmt.Sprintf("127.0.1.%d", i+1), addr)
		if _, err := fmt.Fprint(c, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-come
	}
	idle := []net.Conn{from(t, "127.0.0.9", addr), from(t, "127.0.0.9", addr)} // all places are taken
	for _, c := range idle {
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if err := ask(from(t, "127.0.1.100", addr)); err == nil {
			t.Error("strangers have more than three quarters")
		}
	}
	for _, c := range idle {
		if err := ask(c); err != nil {
			t.Errorf("a connection of one whom the handler knows has ended for a stranger: %v", err)
		}
	}
	// A connection counts as idle a moment after its answer can be read.
	err := ask(from(t, "127.0.0.9", addr))
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); err = ask(from(t, "127.0.0.9", addr)) {
		runtime.Gosched()
	}
	if err != nil {
		t.Errorf("whom the handler knows: %v", err)
	}
}

// One customer of a provider has 65,536 networks of IPv6, and counts as one stranger.
func TestNetworksOfStrangers(t *testing.T) {
	p := newPlaces(Options{Conns: 64, PerClient: 4, Knows: true}.complete())
	taken := func(address string) (n int) {
		for i := range 64 {
			a := fmt.Sprintf(address, i)
			if p.take(&conn{places: p, client: Client(a), network: network(a)}) == nil {
				n++
			}
		}
		return n
	}
	if n := taken("2001:db8:1:%x::1"); n != 12 {
		t.Errorf("one customer has %d places, want a quarter of what strangers have", n)
	}
	if n := taken("2001:db8:2::%x"); n != 4 {
		t.Errorf("one network has %d places, want 4", n)
	}
	one := &conn{places: p, client: "192.0.2.1", network: "192.0.2.1"}
	p.know(one)
	for range 4 {
		if err := p.take(&conn{places: p, client: "192.0.2.1", network: "192.0.2.1"}); err != nil {
			t.Errorf("one that is known: %v", err)
		}
	}
}

// Whom the server knows is remembered for a while, and bounded.
func TestKnown(t *testing.T) {
	p := newPlaces(Options{}.complete())
	for i := range maxKnown + 10 {
		p.know(&conn{client: fmt.Sprint(i)})
	}
	if len(p.known) != maxKnown || !p.knows(fmt.Sprint(maxKnown+9)) {
		t.Errorf("%d are known", len(p.known))
	}
	p.known["old"] = time.Now().Add(-knownFor)
	if p.knows("old") || p.knows("nobody") {
		t.Error("strangers are known")
	}
}

// Nothing is kept of connections that are over.
func TestPlacesAreForgotten(t *testing.T) {
	addr, p := limited(t, func(http.ResponseWriter, *http.Request) {}, Options{Knows: true})
	for range 5 {
		c := from(t, "127.0.0.1", addr)
		if err := ask(c); err != nil {
			t.Fatal(err)
		}
		_ = c.Close() // the server sees it
	}
	eventually(t, "places are kept", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) == 0
	})
	for range UsualPerClient {
		eventually(t, "places did not come back", func() bool { _, err := p.all.Take("127.0.0.1"); return err == nil })
	}
}

func TestLimits(t *testing.T) {
	for want, o := range map[string]Options{
		"":                                  {Conns: 1000, PerClient: 10, Idle: time.Second},
		"a limit of connections is below 0": {Conns: -1},
		"11 connections from one address are more than 10 in all": {Conns: 10, PerClient: 11},
	} {
		if err := o.Check(); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Options{Conns: 1 << 40}).Check(); err == nil {
		t.Error("more connections than there are files")
	}
	if files, err := maxFiles(); err != nil || filesFor(Options{}.Most()) > files {
		t.Errorf("%d connections of %d files, %v", Options{}.Most(), files, err)
	}
}

// TestClient: a machine has all addresses of a network of IPv6, and counts once.
func TestClient(t *testing.T) {
	for address, want := range map[string][2]string{
		"192.0.2.1": {"192.0.2.1", "192.0.2.1"}, "::ffff:192.0.2.1": {"::ffff:192.0.2.1", "::ffff:192.0.2.1"},
		"2001:db8:0:1::1": {"2001:db8:0:1::/64", "2001:db8::/48"}, "2001:db8:0:1:ffff::2": {"2001:db8:0:1::/64", "2001:db8::/48"},
		"2001:db8:0:2::1": {"2001:db8:0:2::/64", "2001:db8::/48"}, "fe80::1%eth0": {"fe80::/64", "fe80::/48"}, "@": {"@", "@"},
	} {
		if got := [2]string{Client(address), network(address)}; got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
