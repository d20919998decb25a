// SPDX-License-Identifier: Apache-2.0

package cms

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/require"
)

const stub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"

func program(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(stub)
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	return data
}

// TestAuthenticodeSigned: osslsigncode(1) takes the signature, of that program alone; one that is signed again
// has one signature, and the same program has the same.
func TestAuthenticodeSigned(t *testing.T) {
	require.Tool(t, "osslsigncode")
	key, certificate := certified.Authority(t, "boot")
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := func(program []byte) (string, error) {
		at := filepath.Join(dir, "program.efi")
		if err := os.WriteFile(at, program, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("osslsigncode", "verify", "-CAfile", ca, "-in", at).CombinedOutput()
		return string(out), err
	}
	bare := program(t)
	signed, err := SignImage(bare, key, certificate)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := verify(signed); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if again, err := SignImage(signed, key, certificate); err != nil || !bytes.Equal(again, signed) {
		t.Errorf("signed once more it is another program, %v", err)
	}
	odd, err := SignImage(append(bytes.Clone(bare), "behind"...), key, certificate)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := verify(odd); err != nil {
		t.Errorf("with more behind the sections: %v\n%s", err, said)
	}
	for _, at := range []int{0x80, len(bare) / 2} {
		changed := bytes.Clone(signed)
		changed[at] ^= 1
		if said, err := verify(changed); err == nil {
			t.Errorf("byte %d is changed, and it is taken\n%s", at, said)
		}
	}
}

// TestImageDigestInMemory: firmware hashes a signed kernel in memory, with zeros behind it, as the log of a real
// one says (fleet/attest/testdata/ovmf.log): all but as many bytes at the end as the signatures have.
func TestImageDigestInMemory(t *testing.T) {
	key, certificate := certified.Authority(t, "boot")
	bare := program(t)
	signed, err := SignImage(bare, key, certificate)
	if err != nil {
		t.Fatal(err)
	}
	bareSum, err := ImageDigest(bare)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := ImageDigest(signed); err != nil || !bytes.Equal(sum, bareSum) {
		t.Errorf("signed it is %x, not %x: %v", sum, bareSum, err)
	}
	table := len(signed) - len(padImage(bytes.Clone(bare)))
	inMemory := append(bytes.Clone(signed), make([]byte, 4096)...)
	unsigned := append(bytes.Clone(signed), make([]byte, 4096-table)...)
	binary.LittleEndian.PutUint32(unsigned[int(binary.LittleEndian.Uint32(bare[headerAt:]))+signaturesAt+4:], 0)
	want, err := ImageDigest(unsigned)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := ImageDigest(inMemory); err != nil || !bytes.Equal(sum, want) || bytes.Equal(sum, bareSum) {
		t.Errorf("in memory it is %x, not %x: %v", sum, want, err)
	}
	if _, err := SignImage(inMemory, key, certificate); err == nil {
		t.Error("what has more behind its signatures is signed")
	}
}

// TestDamaged: a file that is not a whole program is refused.
func TestDamaged(t *testing.T) {
	key, certificate := certified.Authority(t, "boot")
	bare := program(t)
	entry := int(binary.LittleEndian.Uint32(bare[headerAt:])) + signaturesAt
	for what, change := range map[string]func(b []byte) []byte{
		"cut":              func(b []byte) []byte { return b[:len(b)/2] },
		"nothing":          func([]byte) []byte { return nil },
		"text":             func([]byte) []byte { return []byte(strings.Repeat("text", 100)) },
		"signatures early": func(b []byte) []byte { binary.LittleEndian.PutUint32(b[entry+4:], 8); return b },
	} {
		if _, err := SignImage(change(bytes.Clone(bare)), key, certificate); err == nil {
			t.Errorf("%s: signed", what)
		}
	}
}

// headers is a program of headers alone, which say how long they are, and where its signatures are.
func headers(t testing.TB, size uint32, signatures pe.DataDirectory) []byte {
	t.Helper()
	dos := append([]byte("MZ"), make([]byte, headerAt-2)...)
	optional := pe.OptionalHeader64{Magic: 0x20b, SizeOfHeaders: size, NumberOfRvaAndSizes: 16}
	optional.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_SECURITY] = signatures
	data, err := binary.Append(append(dos, headerAt+4, 0, 0, 0, 'P', 'E', 0, 0), binary.LittleEndian, struct {
		pe.FileHeader
		pe.OptionalHeader64
	}{pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64, SizeOfOptionalHeader: uint16(binary.Size(optional))}, optional})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSignaturesInHeaders: a program whose signatures begin within its headers is refused.
func TestSignaturesInHeaders(t *testing.T) {
	whole := headers(t, 0, pe.DataDirectory{})
	size := uint32(len(whole))
	whole = headers(t, size, pe.DataDirectory{})
	_, sum, err := imageDigest(whole)
	if err != nil {
		t.Fatalf("without signatures: %v", err)
	}
	if named, err := ImageDigest(whole); err != nil || !bytes.Equal(named, sum) {
		t.Errorf("without signatures: %x, want %x: %v", named, sum, err)
	}
	for at := range size {
		program := headers(t, 0, pe.DataDirectory{VirtualAddress: at, Size: size - at})
		if _, _, err := imageDigest(program); err == nil {
			t.Errorf("signatures from byte %d: it has a digest to sign", at)
		}
		if _, err := ImageDigest(program); err == nil {
			t.Errorf("signatures of %d of %d bytes: it has a digest", size-at, size)
		}
	}
}

// FuzzSign: whatever a program is, it has its digests or is refused.
func FuzzSign(f *testing.F) {
	data, err := os.ReadFile(stub)
	if err == nil {
		f.Add(data)
	}
	f.Add([]byte("MZ"))
	size := uint32(len(headers(f, 0, pe.DataDirectory{})))
	f.Add(headers(f, size, pe.DataDirectory{}))
	f.Add(headers(f, size, pe.DataDirectory{Size: size}))
	f.Add(headers(f, 0, pe.DataDirectory{VirtualAddress: 8, Size: size - 8}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bare, sum, err := imageDigest(data); err == nil && (len(sum) != 32 || len(bare)%8 != 0) {
			t.Errorf("%d bytes, digest %x", len(bare), sum)
		}
		if sum, err := ImageDigest(data); err == nil && len(sum) != 32 {
			t.Errorf("digest %x", sum)
		}
	})
}
