// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/oci/sign"
)

// TestToken holds examples/signer/pkcs11 against a token that never gives its key away.
func TestToken(t *testing.T) {
	require.Tool(t, "softhsm2-util", "pkcs11-tool", "openssl", "basenc")
	modules, err := filepath.Glob("/usr/lib/*/softhsm/libsofthsm2.so")
	if err != nil || len(modules) == 0 {
		t.Fatalf("softhsm2 has no library: %v", err)
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "softhsm2.conf")
	if err := os.WriteFile(conf, []byte("directories.tokendir = "+dir+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOFTHSM2_CONF", conf)
	t.Setenv("CAISSON_TOKEN_MODULE", modules[0])
	t.Setenv("CAISSON_TOKEN_KEY", "operator")
	t.Setenv("CAISSON_TOKEN_PIN", "1234")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	run("softhsm2-util", "--init-token", "--free", "--label", "fleet", "--so-pin", "0000", "--pin", "1234")
	run("pkcs11-tool", "--module", modules[0], "--login", "--pin", "1234", "--keypairgen", "--key-type", "EC:prime256v1", "--label", "operator")

	command, err := filepath.Abs("../../examples/signer/pkcs11")
	if err != nil {
		t.Fatal(err)
	}
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
	t.Setenv("CAISSON_TOKEN_PIN", "4321")
	if _, err := signer.Sign(rand.Reader, digest[:], crypto.SHA256); err == nil {
		t.Error("the token signs with a wrong PIN")
	}
	t.Setenv("CAISSON_TOKEN_KEY", "another")
	if _, err := Program(command); err == nil {
		t.Error("a key that the token does not have was found")
	}
}
