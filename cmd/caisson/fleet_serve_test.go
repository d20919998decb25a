// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/httpserver"
)

// TestOpenedAt: what is printed can be opened, and is a name that the service answers to.
func TestOpenedAt(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listens string
		tls     bool
		told    []string
		want    string
	}{
		{"[::]:8443", true, []string{"fleet.example.org", "other"}, "https://fleet.example.org:8443"},
		{"[::]:8443", true, []string{"fleet.example.org:443"}, "https://fleet.example.org:443"},
		{"0.0.0.0:8443", true, nil, "https://" + strings.ToLower(own) + ":8443"},
		{"[::]:8080", false, nil, "http://" + strings.ToLower(own) + ":8080"},
		{"127.0.0.1:8080", false, []string{"fleet.example.org"}, "http://127.0.0.1:8080"},
		{"[::1]:8080", false, nil, "http://[::1]:8080"},
		{"[2001:db8::1]:8443", true, nil, "https://[2001:db8::1]:8443"},
		{"[::]:8443", true, []string{"2001:db8::1"}, "https://[2001:db8::1]:8443"},
		{"[::]:8443", true, []string{"[2001:db8::1]"}, "https://[2001:db8::1]:8443"},
		{"192.0.2.1:8443", true, []string{"fleet.example.org"}, "https://fleet.example.org:8443"},
	} {
		at, err := net.ResolveTCPAddr("tcp", c.listens)
		if err != nil {
			t.Fatal(err)
		}
		if got := httpserver.Address(at, c.tls, c.told); got != c.want {
			t.Errorf("%s, told %q: %s, want %s", c.listens, c.told, got, c.want)
		}
	}
}
