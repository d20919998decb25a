// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func generateBoot(t *testing.T, passphrase string) (name string) {
	t.Helper()
	t.Setenv("CAISSON_PASSPHRASE", passphrase)
	name = filepath.Join(t.TempDir(), "keys", "boot")
	if encrypted, err := GenerateBoot(name, nil, time.Now()); err != nil || encrypted != (passphrase != "") {
		t.Fatalf("GenerateBoot: %v, %v", encrypted, err)
	}
	return name
}

// TestBoot: what is made signs by the certificate, from its file and from a program that has it.
func TestBoot(t *testing.T) {
	name := generateBoot(t, "secret")
	if _, err := GenerateBoot(name, nil, time.Now()); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("made again: %v", err)
	}
	if _, err := Open(name+".key", nil); err == nil || !strings.Contains(err.Error(), "not ECDSA P-256") {
		t.Errorf("as a key of another role: %v", err)
	}
	boot, err := ReadBoot(name+".key", name+".crt", nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := boot.Open()
	if err != nil {
		t.Fatal(err)
	}
	public := boot.Certificate().PublicKey.(*rsa.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	for at, text := range map[string][]byte{filepath.Join(dir, "pub"): pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), program: []byte("#!/bin/sh\ncat " + dir + "/$1\n")} {
		if err := os.WriteFile(at, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "pub"), filepath.Join(dir, "public")); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("module"))
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil || rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature) != nil {
		t.Errorf("signed by another key, %v", err)
	}
	held, err := ReadBoot(Command(program), name+".crt", nil)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := held.Open(); err != nil || !public.Equal(key.Public()) {
		t.Errorf("a program: %v", err)
	}
}

// TestBootOpenedTwice: a key that comes by a descriptor signs kernel, modules and loader.
func TestBootOpenedTwice(t *testing.T) {
	name := generateBoot(t, "")
	f, err := os.Open(name + ".key")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // only read
	handed, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	boot, err := ReadBoot("fd:"+strconv.Itoa(handed), name+".crt", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := boot.Open(); err != nil {
			t.Error(err)
		}
	}
}

func TestBootRefused(t *testing.T) {
	name := generateBoot(t, "")
	other := generateBoot(t, "")
	_, private, public := pair(t, "")
	for what, c := range map[string]struct{ key, certificate, want string }{
		"another certificate":  {name + ".key", other + ".crt", "not that of the certificate"},
		"no certificate":       {name + ".key", public, "no PEM block with a certificate"},
		"no file":              {name + ".key", name + ".pem", "no such file"},
		"a key of P-256":       {private, name + ".crt", "not RSA-2048"},
		"a key that is absent": {name + ".pem", name + ".crt", "no such file"},
	} {
		boot, err := ReadBoot(c.key, c.certificate, nil)
		if err == nil {
			_, err = boot.Open()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}
