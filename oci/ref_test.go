// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"strings"
	"testing"
)

func TestParseRef(t *testing.T) {
	for s, want := range map[string]Ref{
		"registry.example.org:5000/metal-a": {Host: "registry.example.org:5000", Prefix: "metal-a"},
		"registry.example.org/a/b-c_d.e":    {Host: "registry.example.org", Prefix: "a/b-c_d.e"},
		"localhost":                         {Host: "localhost"},
		"[::1]:5000/x/":                     {Host: "[::1]:5000", Prefix: "x"},
		"oci:./out":                         {Layout: "out"},
		"oci:/srv/out/":                     {Layout: "/srv/out"},
	} {
		got, err := ParseRef(s)
		if err != nil || got != want {
			t.Errorf("ParseRef(%q) = %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "oci:", "https://x/y", "user@host/x", "host/x:tag", "host/x@sha256:00", "host/../x", "host//x", "host/X", "host:/x", "host:x/y", "/x", "ho st/x", "host?q/x", "host#f"} {
		if got, err := ParseRef(s); err == nil {
			t.Errorf("ParseRef(%q) = %+v, want an error", s, got)
		}
	}
	if got := (Ref{Host: "h", Prefix: "a/b"}).Repo("node"); got != "a/b/node" {
		t.Errorf("Repo = %q", got)
	}
	if got := (Ref{Host: "h"}).Repo("node"); got != "node" {
		t.Errorf("Repo without prefix = %q", got)
	}
}

func TestValidTag(t *testing.T) {
	for s, want := range map[string]bool{strings.Repeat("a", 128): true, strings.Repeat("a", 129): false, "_x.Y-1": true, ".x": false, "x/y": false, "": false} {
		if got := ValidTag(s); got != want {
			t.Errorf("ValidTag(%q) = %v", s, got)
		}
	}
}
