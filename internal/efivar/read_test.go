// SPDX-License-Identifier: Apache-2.0

package efivar

import (
	"bytes"
	"encoding/pem"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/test/certified"
)

func TestCheck(t *testing.T) {
	_, certificate := certified.Key(t, "kek")
	both := append(Certificate(certificate), Digests([][]byte{make([]byte, 32), make([]byte, 32)})...)
	if err := check(both); err != nil {
		t.Error(err)
	}
	for name, data := range map[string][]byte{"nothing": nil, "a text": []byte("-----BEGIN CERTIFICATE-----\n and more"), "cut": both[:len(both)-1],
		"attributes before it": append([]byte{0x27, 0, 0, 0}, both...), "an entry of nothing": list(ofDigests, [][]byte{{}})} {
		if check(data) == nil {
			t.Errorf("%s is taken for a signature list", name)
		}
	}
	broken := bytes.Clone(both)
	broken[50] ^= 0xff
	if check(broken) == nil {
		t.Error("a certificate that cannot be read is taken")
	}
}

// TestRead: each form that people have becomes the lists of a variable.
func TestRead(t *testing.T) {
	_, a := certified.Key(t, "kek")
	_, b := certified.Key(t, "kek")
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	both := append(Certificate(a), Certificate(b)...)
	for name, c := range map[string]struct {
		file, lists []byte
		names       []string
	}{
		"two in PEM":          {append(text("CERTIFICATE", a.Raw), text("CERTIFICATE", b.Raw)...), both, []string{"kek", "kek"}},
		"DER":                 {a.Raw, Certificate(a), []string{"kek"}},
		"lists":               {both, both, nil},
		"a variable of Linux": {append([]byte{0x27, 0, 0, 0}, both...), both, nil},
		"a private key":       {text("PRIVATE KEY", a.Raw), nil, nil},
		"two in DER":          {append(bytes.Clone(a.Raw), b.Raw...), nil, nil},
		"a text":              {[]byte("boot.crt"), nil, nil},
		"nothing":             {nil, nil, nil},
	} {
		lists, names, err := Read(c.file)
		if (err == nil) != (c.lists != nil) || !bytes.Equal(lists, c.lists) || !slices.Equal(names, c.names) {
			t.Errorf("%s: %d bytes, %v, %v", name, len(lists), names, err)
		}
	}
}

// TestEntries: what a dbx names by digests of certificates is read, as far as entries are whole.
func TestEntries(t *testing.T) {
	_, certificate := certified.Key(t, "kek")
	since := make([]byte, 16)
	for kind, size := range ofRevoked {
		digest := bytes.Repeat([]byte{7}, size)
		lists := slices.Concat(Certificate(certificate), list(kind, [][]byte{append(bytes.Clone(digest), since...), append(bytes.Clone(digest), since...)}),
			Digests([][]byte{make([]byte, 32)}), list(guid("826ca512-cf10-4ac9-b187-be01496631bd"), [][]byte{make([]byte, 20)}))
		all, digests, revoked, err := Entries(lists)
		if err != nil || len(all) != 1 || len(digests) != 1 || len(revoked) != 2 || !bytes.Equal(revoked[0], digest) || !bytes.Equal(revoked[1], digest) {
			t.Errorf("%x: %d, %d, %x, %v", kind, len(all), len(digests), revoked, err)
		}
		for _, short := range []int{0, 1, size - 1} {
			if _, _, revoked, err := Entries(list(kind, [][]byte{digest[:short]})); err == nil {
				t.Errorf("%x: of %d bytes: %x", kind, short, revoked)
			}
		}
		if _, _, _, err := Entries(lists[:len(lists)-1]); err == nil {
			t.Errorf("%x: a cut list is read", kind)
		}
	}
}

// FuzzRead: no file ends the program, and what is read is what a variable holds.
func FuzzRead(f *testing.F) {
	_, certificate := certified.Key(f, "kek")
	f.Add(Certificate(certificate))
	f.Add(certificate.Raw)
	f.Add(Digests([][]byte{make([]byte, 32)}))
	for kind, size := range ofRevoked {
		f.Add(list(kind, [][]byte{make([]byte, size+16)}))
		f.Add(list(kind, [][]byte{make([]byte, size-1)}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, revoked, _ := Entries(data)
		for _, r := range revoked {
			if len(r) != 32 && len(r) != 48 && len(r) != 64 {
				t.Errorf("a digest of %d bytes", len(r))
			}
		}
		if lists, _, err := Read(data); err == nil && check(lists) != nil {
			t.Error("what was read is not a list")
		}
	})
}
