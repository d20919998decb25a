// SPDX-License-Identifier: Apache-2.0

package cms

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/ukitest"
)

// TestVerify: a program is started that somebody signed whom the firmware knows, or to whom such a one
// leads by certificates that the signature brings, and no other.
func TestVerify(t *testing.T) {
	key, ours := certified.Authority(t, "boot")
	otherKey, other := certified.Authority(t, "boot")
	signer, below := certified.By(t, key, ours, "signer")
	middleKey, middle := certified.By(t, key, ours, "middle")
	lowerKey, lower := certified.By(t, middleKey, middle, "lower")
	lowestKey, lowest := certified.By(t, lowerKey, lower, "lowest")
	chain := *lowest
	chain.Raw = slices.Concat(lowest.Raw, middle.Raw, lower.Raw, ours.Raw) // as others write who is above them
	bare := ukitest.Stub(8)
	signed := func(key *rsa.PrivateKey, c *x509.Certificate) []byte {
		t.Helper()
		data, err := SignImage(bare, key, c)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	changed := func(at int) []byte {
		data := signed(key, ours)
		data[(at+len(data))%len(data)] ^= 1
		return data
	}
	sum, err := ImageDigest(bare)
	if err != nil {
		t.Fatal(err)
	}
	moved := changed(0x205) // and the signature names what it is now
	to, err := ImageDigest(moved)
	if err != nil {
		t.Fatal(err)
	}
	moved = bytes.Replace(moved, sum, to, 1)
	table := int(binary.LittleEndian.Uint32(signed(key, ours)[0x40+signaturesAt:]))
	twice := append(signed(otherKey, other), signed(key, ours)[table:]...)
	binary.LittleEndian.PutUint32(twice[0x40+signaturesAt+4:], uint32(len(twice)-table))
	short, middling, long := sha256.Sum256(below.RawTBSCertificate), sha512.Sum384(ours.RawTBSCertificate), sha512.Sum512(middle.RawTBSCertificate)
	others := sha256.Sum256(other.RawTBSCertificate)
	for _, c := range []struct {
		what    string
		program []byte
		trusts  TrustsImage
		want    string
	}{
		{"by our key", signed(key, ours), TrustsImage{Allowed: []*x509.Certificate{other, ours}}, ""},
		{"below our key", signed(signer, below), TrustsImage{Allowed: []*x509.Certificate{ours}}, ""},
		{"far below our key", signed(lowestKey, &chain), TrustsImage{Allowed: []*x509.Certificate{ours}}, ""},
		{"far below somebody else", signed(lowestKey, &chain), TrustsImage{Allowed: []*x509.Certificate{other}}, `signed by "lowest", whom nobody trusts here`},
		{"far below our key, which nobody shows", signed(lowestKey, lowest), TrustsImage{Allowed: []*x509.Certificate{ours}}, `signed by "lowest", whom nobody trusts here`},
		{"by somebody else, then by our key", twice, TrustsImage{Allowed: []*x509.Certificate{ours}}, ""},
		{"by its digest", bare, TrustsImage{Digests: [][]byte{sum}}, ""},
		{"by somebody else of the same name", signed(otherKey, other), TrustsImage{Allowed: []*x509.Certificate{ours}}, `signed by "boot", whom nobody trusts here`},
		{"below somebody else", signed(signer, below), TrustsImage{Allowed: []*x509.Certificate{other}}, `signed by "signer", whom nobody trusts here`},
		{"by nobody", bare, TrustsImage{Allowed: []*x509.Certificate{ours}}, "nobody signed it"},
		{"forbidden", signed(key, ours), TrustsImage{Allowed: []*x509.Certificate{ours}, Forbidden: [][]byte{sum}}, "(dbx)"},
		{"by whom is forbidden", signed(key, ours), TrustsImage{Allowed: []*x509.Certificate{ours}, ForbiddenBy: []*x509.Certificate{other, ours}}, "signer signs (dbx)"},
		{"below whom is forbidden", signed(signer, below), TrustsImage{Allowed: []*x509.Certificate{ours, below}, ForbiddenBy: []*x509.Certificate{ours}}, "signer signs (dbx)"},
		{"far below whom is forbidden", signed(lowestKey, &chain), TrustsImage{Allowed: []*x509.Certificate{lowest}, ForbiddenBy: []*x509.Certificate{ours}}, "signer signs (dbx)"},
		{"by our key, and first by whom is forbidden", twice, TrustsImage{Allowed: []*x509.Certificate{ours}, ForbiddenBy: []*x509.Certificate{other}}, "signer signs (dbx)"},
		{"by whom is forbidden, and first by somebody allowed", twice, TrustsImage{Allowed: []*x509.Certificate{other}, ForbiddenBy: []*x509.Certificate{ours}}, "signer signs (dbx)"},
		{"by its digest, and whom is forbidden", signed(key, ours), TrustsImage{Digests: [][]byte{sum}, ForbiddenBy: []*x509.Certificate{ours}}, "signer signs (dbx)"},
		{"by our key, with somebody else forbidden", signed(key, ours), TrustsImage{Allowed: []*x509.Certificate{ours}, ForbiddenBy: []*x509.Certificate{other}}, ""},
		{"by its digest, signed by somebody else", signed(otherKey, other), TrustsImage{Digests: [][]byte{sum}}, ""},
		{"by whom is revoked", signed(signer, below), TrustsImage{Allowed: []*x509.Certificate{ours}, Revoked: [][]byte{short[:]}}, "signer signs (dbx)"},
		{"by whom is allowed and revoked", signed(key, ours), TrustsImage{Allowed: []*x509.Certificate{ours}, Revoked: [][]byte{others[:], middling[:]}}, "signer signs (dbx)"},
		{"below whom is allowed and revoked", signed(signer, below), TrustsImage{Allowed: []*x509.Certificate{ours}, Revoked: [][]byte{middling[:]}}, "signer signs (dbx)"},
		{"far below whom is revoked", signed(lowestKey, &chain), TrustsImage{Allowed: []*x509.Certificate{lowest}, Revoked: [][]byte{long[:]}}, "signer signs (dbx)"},
		{"by our key, and first by whom is revoked", twice, TrustsImage{Allowed: []*x509.Certificate{ours}, Revoked: [][]byte{others[:]}}, "signer signs (dbx)"},
		{"by its digest, and whom is revoked", signed(signer, below), TrustsImage{Digests: [][]byte{sum}, Revoked: [][]byte{short[:]}}, "signer signs (dbx)"},
		{"by our key, with somebody else revoked", signed(key, ours), TrustsImage{Allowed: []*x509.Certificate{ours, other}, Revoked: [][]byte{others[:], short[:]}}, ""},
		{"with one changed byte", changed(0x205), TrustsImage{Allowed: []*x509.Certificate{ours}}, "it is not what was signed"},
		{"with one changed byte, and its digest", moved, TrustsImage{Allowed: []*x509.Certificate{ours}}, "signature: of other content"},
		{"with a changed signature", changed(-12), TrustsImage{Allowed: []*x509.Certificate{ours}}, "signature: "},
		{"cut", bare[:100], TrustsImage{}, "EOF"},
	} {
		err := c.trusts.Verify(c.program)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// TestOpenOfAnotherType: what the key signed as something else does not count, neither as it is nor where the
// type that is not signed is changed.
func TestOpenOfAnotherType(t *testing.T) {
	key, ours := certified.Authority(t, "boot")
	other := slices.Clone(oidIndirect)
	other[len(other)-1]++
	content, err := indirect(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := Enclosed(key, ours, other, content)
	if err != nil {
		t.Fatal(err)
	}
	is := func(signature []byte, want string) {
		t.Helper()
		if _, err := Open(signature, oidIndirect, []*x509.Certificate{ours}); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	is(signature, "signature: of something else")
	from, err := asn1.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	to, err := asn1.Marshal(oidIndirect)
	if err != nil {
		t.Fatal(err)
	}
	is(bytes.Replace(signature, from, to, 1), "signature: of other content")
}

// FuzzVerify: whatever a program is, only what was signed is taken.
func FuzzVerify(f *testing.F) {
	key, ours := certified.Authority(f, "boot")
	bare := ukitest.Stub(8)
	signed, err := SignImage(bare, key, ours)
	if err != nil {
		f.Fatal(err)
	}
	sum, err := ImageDigest(bare)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add(bare)
	f.Fuzz(func(t *testing.T, program []byte) {
		if (TrustsImage{Allowed: []*x509.Certificate{ours}}).Verify(program) != nil {
			return
		}
		if got, err := ImageDigest(program); err != nil || !bytes.Equal(got, sum) {
			t.Errorf("%x, %v was never signed", got, err)
		}
	})
}
