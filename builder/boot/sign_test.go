// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"encoding/asn1"
	"encoding/binary"
	"testing"

	"github.com/caisson-os/caisson/test/certified"
)

// TestSign: a module ends as the kernel looks for it from its end, kernel/module/signing.c.
func TestSign(t *testing.T) {
	key, certificate := certified.Key(t, "boot")
	module := []byte("\x7fELF module")
	signed, err := SignModule(module, key, certificate)
	if err != nil {
		t.Fatal(err)
	}
	rest, ok := bytes.CutSuffix(signed, []byte("~Module signature appended~\n"))
	if !ok || len(rest) < 12 {
		t.Fatalf("it ends in %q", signed)
	}
	info, rest := rest[len(rest)-12:], rest[:len(rest)-12]
	if !bytes.Equal(info[:8], []byte{0, 0, 2, 0, 0, 0, 0, 0}) { // PKEY_ID_PKCS7; all else zero
		t.Errorf("struct module_signature is %x", info)
	}
	size := int(binary.BigEndian.Uint32(info[8:]))
	if size > len(rest) || !bytes.Equal(rest[:len(rest)-size], module) {
		t.Fatalf("a signature of %d bytes", size)
	}
	var seq asn1.RawValue
	if left, err := asn1.Unmarshal(rest[len(rest)-size:], &seq); err != nil || len(left) > 0 {
		t.Errorf("the signature is no whole DER value: %v", err)
	}
}
