// SPDX-License-Identifier: Apache-2.0

package digest

import (
	"crypto/sha256"
	"strings"
	"testing"
)

func TestDigest(t *testing.T) {
	const hello = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	h := sha256.New()
	h.Write([]byte("hello"))
	if Of([]byte("hello")) != hello || From(h) != hello || FromHex(Hex(hello)) != hello {
		t.Errorf("%s, %s, %s; want %s", Of([]byte("hello")), From(h), FromHex(Hex(hello)), hello)
	}
	for s, want := range map[string]bool{
		hello: true, "": false, "sha256:": false, Hex(hello): false, strings.ToUpper(hello): false,
		"sha256:" + strings.ToUpper(Hex(hello)): false, hello + "0": false, hello[:70]: false,
		"sha512:" + Hex(hello): false, "sha256:" + strings.Repeat("/", 64): false, "sha256:../" + Hex(hello)[3:]: false,
	} {
		if Valid(s) != want {
			t.Errorf("Valid(%q) = %v", s, !want)
		}
	}
}
