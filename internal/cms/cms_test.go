// SPDX-License-Identifier: Apache-2.0

package cms

import (
	"bytes"
	"encoding/asn1"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/require"
)

// TestSigned: openssl(1) takes both forms, not of other data, and the same is signed by the same bytes.
func TestSigned(t *testing.T) {
	require.Tool(t, "openssl")
	key, certificate := certified.Key(t, "boot")
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return at
	}
	pub := write("crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	verify := func(signature []byte, more ...string) error {
		out, err := exec.Command("openssl", append([]string{"cms", "-verify", "-inform", "DER", "-binary", "-in", write("sig", signature), "-noverify", "-nointern", "-certfile", pub, "-out", "/dev/null"}, more...)...).CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}
	detached, err := Detached(key, certificate, []byte("module"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Detached(key, certificate, []byte("module")); err != nil || !bytes.Equal(again, detached) {
		t.Errorf("the same is signed otherwise, %v", err)
	}
	if err := verify(detached, "-content", write("module", []byte("module"))); err != nil {
		t.Error(err)
	}
	if verify(detached, "-content", write("module", []byte("Module"))) == nil {
		t.Error("the signature is of any data")
	}
	value, err := asn1.Marshal(struct{ A, B int }{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	enclosed, err := Enclosed(key, certificate, asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 4}, value)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("openssl", "asn1parse", "-inform", "DER", "-in", write("enclosed", enclosed)).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("messageDigest")) || bytes.Contains(out, []byte("signingTime")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAnotherKey(t *testing.T) {
	key, _ := certified.Key(t, "boot")
	_, certificate := certified.Key(t, "boot")
	if _, err := Detached(key, certificate, nil); err == nil {
		t.Error("signed by another key than that of the certificate")
	}
}
