// SPDX-License-Identifier: Apache-2.0

package efivar

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// erased is a flash image with a store of so many bytes, as OVMF's begins.
func erased(size int) []byte {
	image := append(make([]byte, 0x48), inStore[:]...)
	image = binary.LittleEndian.AppendUint32(image, uint32(size))
	image = append(image, 0x5a, 0xfe, 0, 0, 0, 0, 0, 0)
	return append(image, bytes.Repeat([]byte{0xff}, size-firstAt)...)
}

// TestFill: what is set is there, word for word as firmware writes it, and nothing that was.
func TestFill(t *testing.T) {
	got, err := Fill(erased(256), map[Variable][]byte{Allowed: []byte("three"), Platform: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	head := "\xaa\x55\x3f\x00\x27\x00\x00\x00" + string(make([]byte, 28))
	want := head + "\x06\x00\x00\x00\x01\x00\x00\x00\x61\xdf\xe4\x8b\xca\x93\xd2\x11\xaa\x0d\x00\xe0\x98\x03\x2b\x8cP\x00K\x00\x00\x00x\xff" +
		head + "\x06\x00\x00\x00\x05\x00\x00\x00\xcb\xb2\x19\xd7\x3a\x3d\x96\x45\xa3\xbc\xda\xd0\x0e\x67\x65\x6fd\x00b\x00\x00\x00three\xff"
	if !bytes.HasPrefix(got[0x48+firstAt:], []byte(want)) {
		t.Errorf("%q\nwant %q", got[0x48+firstAt:], want)
	}
	again, err := Fill(got, nil)
	if err != nil || !bytes.Equal(again, erased(256)) {
		t.Errorf("it is not emptied: %v", err)
	}
	for what, image := range map[string][]byte{"nothing": nil, "no store": make([]byte, 512), "a store that is cut": erased(256)[:200], "no room": erased(128)} {
		if _, err := Fill(image, map[Variable][]byte{Allowed: []byte("three"), Platform: []byte("x")}); err == nil {
			t.Errorf("%s: it is filled", what)
		}
	}
}

// TestFillReal: the images of Debian's packages have a store. That firmware takes what is written
// is shown by test/vm.
func TestFillReal(t *testing.T) {
	for _, name := range []string{"/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd", "/usr/share/AAVMF/AAVMF_VARS.snakeoil.fd"} {
		image, err := os.ReadFile(name)
		if err != nil {
			require.Missing(t, "tools", err.Error())
		}
		if _, err := Fill(image, map[Variable][]byte{Platform: make([]byte, 1000)}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAsFirmware: what firmware itself has written of PK, KEK and db is the same, but for its times.
func TestAsFirmware(t *testing.T) {
	image, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.snakeoil.fd")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	le := binary.LittleEndian
	for _, v := range []Variable{Platform, Exchange, Allowed} {
		head := v.stored(nil)
		vendor := v.vendor()
		id := append(vendor[:], head[60:60+2*len(v)+2]...)
		at := bytes.LastIndex(image, id) - 44
		if at < 0 {
			t.Fatalf("%s is not there", v)
		}
		size := int(le.Uint32(image[at+40:]))
		got := v.stored(image[at+44+len(id):][:size])
		theirs := bytes.Clone(image[at:][:len(got)])
		clear(theirs[16:32]) // the time
		if !bytes.Equal(got, theirs) {
			t.Errorf("%s begins with\n%x, firmware has\n%x", v, got[:60], theirs[:60])
		}
	}
}
