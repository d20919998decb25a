// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/httpserver"
)

// TestReachedBy: a proxy's URL is one that a shell may see, decides whether the cookie
// is for TLS only, and lets all come from one address.
func TestReachedBy(t *testing.T) {
	tokens := &people.Tokens{}
	for _, c := range []struct {
		url       string
		tokens    *people.Tokens
		want      string
		host      string
		refused   bool
		encrypted bool
	}{
		{url: "https://fleet.example.org", tokens: tokens, want: "https://fleet.example.org", host: "fleet.example.org", encrypted: true},
		{url: "https://Fleet.example.org:8443/", tokens: tokens, want: "https://Fleet.example.org:8443", host: "Fleet.example.org", encrypted: true},
		{url: "http://[::1]:8080", want: "http://[::1]:8080", host: "::1"},
		{url: "http://fleet.example.org", refused: true}, // who reaches the proxy could report
		{url: "https://fleet.example.org/metal", tokens: tokens, refused: true},
		{url: "https://eve@fleet.example.org", tokens: tokens, refused: true},
		{url: "https://a;reboot", tokens: tokens, refused: true},
		{url: "https://$HOME", tokens: tokens, refused: true},
		{url: "fleet.example.org", tokens: tokens, refused: true},
		{url: "ftp://fleet.example.org", tokens: tokens, refused: true},
	} {
		o, s := server.Options{Tokens: c.tokens}, Options{URL: c.url}
		err := s.reachedBy(&o)
		h := s.HTTP
		if c.refused {
			if err == nil || o.URL != "" {
				t.Errorf("%s was taken", c.url)
			}
			continue
		}
		if err != nil || o.URL != c.want || !slices.Contains(o.Hosts, c.host) || o.TLS != c.encrypted || h.PerClient < h.Conns || h.PerClient == 0 {
			t.Errorf("%s: %v, %+v, %+v", c.url, err, o, h)
		}
	}
}

// TestPeopleFlags: what would let in nobody, everybody or a stranger is an error of usage.
func TestPeopleFlags(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("open", []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("open", 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("empty", []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := people.AddToken("tokens", "nodes", people.Reporter); err != nil {
		t.Fatal(err)
	}
	tokens, err := people.OpenTokens("tokens")
	if err != nil {
		t.Fatal(err)
	}
	const issuer, hour = "https://id.example.org", time.Hour
	ops := []string{"operator=ops"}
	for _, c := range []struct {
		flags  People
		tokens *people.Tokens
		want   string // "" is taken
	}{
		{People{Issuer: issuer, Claim: "groups", Groups: ops, Session: hour}, tokens, ""},
		{People{Issuer: "http://127.0.0.1:1", Claim: "groups", Groups: ops, Session: hour}, tokens, ""},
		{People{Issuer: "http://id.example.org", Claim: "groups", Groups: ops, Session: hour}, tokens, "is not https:// with a name"},
		{People{Issuer: "https://", Claim: "groups", Groups: ops, Session: hour}, tokens, "is not https:// with a name"},
		{People{Issuer: issuer, Claim: "groups", Groups: ops, Session: hour}, nil, "without --tokens"},
		{People{Issuer: issuer, Claim: "groups", Groups: ops, Session: 25 * time.Hour}, tokens, "is not between a minute and a day"},
		{People{Issuer: issuer, Claim: "groups", Groups: ops}, tokens, "is not between a minute and a day"},
		{People{Issuer: issuer, Claim: "groups", Session: hour}, tokens, "nobody could do anything"},
		{People{Issuer: issuer, Claim: "groups", Groups: []string{"drain=ops"}, Session: hour}, tokens, "neither reader=GROUP nor operator=GROUP"},
		{People{Issuer: issuer, Claim: "groups", Groups: ops, Session: hour, Secret: "none"}, tokens, "--oidc-secret"},
		{People{Issuer: issuer, Claim: "groups", Groups: ops, Session: hour, Secret: "open"}, tokens, "--oidc-secret"},
		{People{Issuer: issuer, Claim: "groups", Groups: ops, Session: hour, Secret: "empty"}, tokens, "empty is empty"},
		{People{Issuer: issuer, Groups: ops, Session: hour}, tokens, "--oidc-claim is empty"},
		{People{Claim: "groups", Groups: ops, Session: hour}, tokens, "of no use without --oidc-issuer"},
	} {
		who, err := c.flags.open(&server.Options{Tokens: c.tokens}, "http://127.0.0.1:8090")
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v", c.flags, err)
		case c.want == "" && (err != nil || who.Session != hour || who.Groups["ops"] != people.Operator):
			t.Errorf("%+v: %+v, %v", c.flags, who, err)
		}
	}
	if who, err := (&People{}).open(&server.Options{}, ""); who != nil || err != nil {
		t.Errorf("without a provider: %+v, %v", who, err)
	}
}

// TestNamed: browsers come back from a provider by the name that they reach the service by, where that
// listens on a loopback, too.
func TestNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody has connected
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "own"}, {Options{Hosts: []string{"fleet.example.org"}}, "http://fleet.example.org:" + port},
		{Options{Hosts: []string{"fleet.example.org:443"}, HTTP: httpserver.Options{CertFile: "x"}}, "https://fleet.example.org:443"},
	} {
		if got := c.o.named(l, "own"); got != c.want {
			t.Errorf("%v: %s, want %s", c.o.Hosts, got, c.want)
		}
	}
}
