// SPDX-License-Identifier: Apache-2.0

package tpmtest

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/spec"
)

// approves signs that a loader which leaves this in the stub's register opens what is sealed to the key.
func approves(t *testing.T, key *rsa.PrivateKey, content [32]byte) tpm.Approval {
	t.Helper()
	policy := spec.RegisterPolicy(stubRegister, content)
	sum := sha256.Sum256(policy[:])
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return tpm.Approval{Key: &key.PublicKey, Registers: []uint{stubRegister}, Policy: policy[:], Signature: signature}
}

// stubRegister is that of systemd's stub.
const stubRegister = 11

func newRSA(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestSeal: what is sealed is opened behind each loader that the key has signed, in the machine that it was
// sealed in, over boots; not behind another loader, by another key, in another machine, or once the TPM was cleared.
func TestSeal(t *testing.T) {
	open, again := Switched(t)
	machine := tpm.TPM{Open: open, Limit: time.Minute}
	key, stranger := newRSA(t), newRSA(t)
	secret := []byte("AGE-SECRET-KEY-1" + strings.Repeat("Q", 58))
	sealed, err := machine.Seal(secret, &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, secret[:20]) {
		t.Error("the secret stands in what is sealed")
	}
	loader := func(name string) (content [32]byte) {
		t.Helper()
		again()
		d := sha256.Sum256([]byte(name))
		if err := machine.Extend(stubRegister, d); err != nil {
			t.Fatal(err)
		}
		return spec.Extend(content, d)
	}
	for _, name := range []string{"first", "its update", "first"} {
		by := approves(t, key, loader(name))
		for range 5 { // nothing stays in the TPM's memory
			if got, err := machine.Unseal(sealed, by); err != nil || !bytes.Equal(got, secret) {
				t.Fatalf("behind %s: %q, %v", name, got, err)
			}
		}
	}
	first, changed := approves(t, key, spec.Extend([32]byte{}, sha256.Sum256([]byte("first")))), loader("changed")
	bad := first
	bad.Signature = bytes.Clone(bad.Signature)
	bad.Signature[9] ^= 1
	lie := approves(t, stranger, changed)
	lie.Key = &key.PublicKey
	for name, c := range map[string]struct {
		by   tpm.Approval
		want string
	}{
		"a changed loader, by the first one's signature": {first, "open what is sealed to the TPM: " + tpm.ErrOther.Error()},
		"a key that it is not sealed to":                 {approves(t, stranger, changed), "TPM_RC_POLICY_FAIL"},
		"a signature by somebody else":                   {lie, "the signature of the policy: TPM_RC_SIGNATURE"},
		"a signature with another byte":                  {bad, "the signature of the policy: TPM_RC_SIGNATURE"},
	} {
		for range 5 {
			if got, err := machine.Unseal(sealed, c.by); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, tpm.ErrForeign) {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
	}
	by := approves(t, key, loader("first"))
	if err := machine.Extend(stubRegister, [32]byte{}); err != nil { // as systemd does in the root
		t.Fatal(err)
	}
	if _, err := machine.Unseal(sealed, by); !errors.Is(err, tpm.ErrOther) {
		t.Errorf("after the loader: %v", err)
	}
	elsewhere := tpm.TPM{Open: Start(t), Limit: time.Minute}
	if _, err := elsewhere.Unseal(sealed, by); !errors.Is(err, tpm.ErrForeign) {
		t.Errorf("in another machine: %v", err)
	}
	loader("first")
	for _, damaged := range [][]byte{nil, {0}, {0, 200, 1}, sealed[:40], bytes.Repeat([]byte{1}, len(sealed)), append(bytes.Clone(sealed[:len(sealed)-1]), sealed[len(sealed)-1]^1)} {
		if _, err := machine.Unseal(damaged, by); !errors.Is(err, tpm.ErrForeign) {
			t.Errorf("damaged: %x: %v", damaged, err)
		}
	}
	clears(t, open)
	if _, err := machine.Unseal(sealed, by); !errors.Is(err, tpm.ErrForeign) {
		t.Errorf("of a cleared TPM: %v", err)
	}
	none := tpm.Of(t.TempDir())
	if _, err := none.Seal(secret, &key.PublicKey); !errors.Is(err, tpm.ErrNone) {
		t.Errorf("without a TPM: %v", err)
	}
	if _, err := none.Unseal(sealed, by); !errors.Is(err, tpm.ErrNone) {
		t.Errorf("without a TPM: %v", err)
	}
}

// busy answers one command for a TPM, with a warning.
type busy struct {
	io.ReadWriteCloser
	command tpm2.TPMCC
	warns   bool
}

func (b *busy) Write(command []byte) (int, error) {
	if b.warns = tpm2.TPMCC(binary.BigEndian.Uint32(command[6:])) == b.command; b.warns {
		return len(command), nil
	}
	return b.ReadWriteCloser.Write(command)
}

func (b *busy) Read(answer []byte) (int, error) {
	if !b.warns {
		return b.ReadWriteCloser.Read(answer)
	}
	header := binary.BigEndian.AppendUint32([]byte{0x80, 0x01, 0, 0, 0, 10}, uint32(tpm2.TPMRCObjectMemory))
	return copy(answer, header), nil
}

// TestABusyTPMIsNotAnother: a TPM that cannot load a key now is not one that never can, of which the key is set aside.
func TestABusyTPMIsNotAnother(t *testing.T) {
	open := Start(t)
	key := newRSA(t)
	machine := tpm.TPM{Open: open, Limit: time.Minute}
	sealed, err := machine.Seal([]byte("secret"), &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	machine.Open = func() (io.ReadWriteCloser, error) {
		rw, err := open()
		return &busy{ReadWriteCloser: rw, command: tpm2.TPMCCLoad}, err
	}
	if _, err := machine.Unseal(sealed, approves(t, key, [32]byte{})); !errors.Is(err, tpm2.TPMRCObjectMemory) || errors.Is(err, tpm.ErrForeign) {
		t.Error(err)
	}
}
