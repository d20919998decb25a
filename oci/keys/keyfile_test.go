// SPDX-License-Identifier: Apache-2.0

package keys_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/test/require"
)

func TestRoundTrip(t *testing.T) {
	require.Slow(t)
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, pass := range []string{"", "secret"} {
		text, err := keys.Marshal(key, []byte(pass))
		if err != nil {
			t.Fatal(err)
		}
		if !keys.IsEncrypted(text) || bytes.Contains(text, secret) {
			t.Errorf("with passphrase %q the file shows the key", pass)
		}
		got, err := keys.Parse(text, []byte(pass))
		if err != nil || !got.Equal(key) {
			t.Errorf("with passphrase %q: %v", pass, err)
		}
		if _, err := keys.Parse(text, []byte("wrong")); !errors.Is(err, keys.ErrPassphrase) {
			t.Errorf("with the wrong passphrase: %v", err)
		}
	}
}

func TestOtherForms(t *testing.T) {
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(p384)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind string
		der  []byte
		want string
	}{
		{"PRIVATE KEY", pkcs8, ""},
		{"EC PRIVATE KEY", sec1, ""},
		{"PRIVATE KEY", other, "not ECDSA P-256"},
		{"PUBLIC KEY", pkcs8, "not a private key"},
		{"ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`{"kdf":{"name":"scrypt","params":{"N":1073741824,"r":8,"p":1}},"cipher":{"name":"nacl/secretbox","nonce":"` + strings.Repeat("A", 32) + `"}}`), "is not known"},
		{"ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`{"kdf":{"name":"argon2"},"cipher":{"name":"nacl/secretbox"}}`), "is not known"},
	} {
		got, err := keys.Parse(pem.EncodeToMemory(&pem.Block{Type: c.kind, Bytes: c.der}), nil)
		if c.want == "" && (err != nil || !got.Equal(key)) {
			t.Errorf("%s: %v", c.kind, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.kind, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	key, err := sign.Generate()
	if err != nil {
		f.Fatal(err)
	}
	text, err := keys.Marshal(key, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 || keys.IsEncrypted(data) {
			return // scrypt is slow on purpose
		}
		if key, err := keys.Parse(data, nil); err == nil && key == nil {
			t.Fatal("neither a key nor an error")
		}
	})
}
