// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/internal/httpserver"
)

// TestReachedBy: a proxy's URL is one that a shell may see, decides whether the cookie
// is for TLS only, and lets all come from one address.
func TestReachedBy(t *testing.T) {
	tokens := &server.Tokens{}
	for _, c := range []struct {
		url       string
		tokens    *server.Tokens
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
		o, h := server.Options{Tokens: c.tokens}, httpserver.Options{}
		err := reachedBy(c.url, &o, &h)
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
