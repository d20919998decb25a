// SPDX-License-Identifier: Apache-2.0

package module

import (
	"strings"
	"testing"
)

func TestProfileNames(t *testing.T) {
	for text, want := range map[string]string{
		"profile p {\n  profile child { }\n}\nprofile q /usr/bin/q flags=(attach_disconnected) {\n}\n": "p q",
		"#include <tunables/global>\n/usr/sbin/x {\n  /etc/** r,\n  /proc/@{pid}/x r,\n}\n":            "/usr/sbin/x",
		"profile \"with blank\" {}\n\"/opt/a b\" {}\n":                                                 "with blank /opt/a b",
		"# profile no {\nabi <abi/4.0>,\n@{A}=/x\n":                                                    "",
	} {
		if got := strings.Join(ProfileNames(text), " "); got != want {
			t.Errorf("profileNames(%q) = %q; want %q", text, got, want)
		}
	}
}
