// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/tokentest"
)

// TestToken holds examples/signer/pkcs11 against a token that never gives its key away.
func TestToken(t *testing.T) {
	for name, value := range tokentest.New(t, "operator", "root") {
		t.Setenv(name, value)
	}
	command, err := filepath.Abs("../../examples/signer/pkcs11")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAISSON_TOKEN_KEY", "operator")
	signer, err := Program(command)
	if err != nil {
		t.Fatal(err)
	}
	public, err := sign.NewVerifier(signer.Public())
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("an overlay"))
	sig, err := signer.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	if !public.Verify([]byte("an overlay"), sig) {
		t.Error("the token's signature does not hold")
	}
	if public.Verify([]byte("another overlay"), sig) {
		t.Error("the token's signature holds for anything")
	}

	// A label that is named with the command takes the place of the variable.
	both, err := Signers([]string{Command(command + " operator"), Command(command + " root")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, same := sign.Find([]sign.Verifier{public}, both[0].Public()); !same {
		t.Error("the key of the label operator is another one than that of the variable")
	}
	if _, same := sign.Find([]sign.Verifier{public}, both[1].Public()); same {
		t.Error("the keys of two labels are one")
	}

	t.Setenv("CAISSON_TOKEN_PIN", "4321")
	if _, err := signer.Sign(rand.Reader, digest[:], crypto.SHA256); err == nil {
		t.Error("the token signs with a wrong PIN")
	}
	t.Setenv("CAISSON_TOKEN_KEY", "another")
	if _, err := Program(command); err == nil {
		t.Error("a key that the token does not have was found")
	}
}
