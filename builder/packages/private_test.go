// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/test/roottest"
)

// keys are private ones in the form of each program, made of a seed.
func keys(t testing.TB) map[string]string {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "n1")
	if err != nil {
		t.Fatal(err)
	}
	plain := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	headers := map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00"}
	return map[string]string{
		"PKCS 8":         plain,
		"behind others":  "# a certificate\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n" + plain,
		"CR LF":          strings.ReplaceAll(plain, "\n", "\r\n"),
		"in YAML":        "key: |\n  " + strings.ReplaceAll(plain, "\n", "\n  "),
		"in JSON":        `{"private_key": "` + strings.ReplaceAll(plain, "\n", `\n`) + `"}`,
		"headers":        string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: headers, Bytes: bytes.Repeat(der, 3)})),
		"OpenSSH":        string(pem.EncodeToMemory(block)),
		"OpenPGP":        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n" + strings.Repeat("lQOYBF", 10) + "\n=abcd\n",
		"OpenPGP, bare":  "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + strings.Repeat("lQOYBF", 10) + "\n",
		"gpg-agent":      "Created: 20260101T000000\nKey: (protected-private-key (rsa (n #00#)))\n",
		"gpg-agent, old": "(21:protected-private-key(3:rsa",
		"age":            "# created: today\nAGE-SECRET-KEY-1" + strings.Repeat("Q", 58) + "\n",
		"PuTTY":          "PuTTY-User-Key-File-3: ssh-ed25519\n",
		"keytab":         "\x05\x02\x00\x00\x00\x10\x00\x02\x00\x07EXAMPLE\x00\x04host\x00",
		"keyring":        "\x95\x00\x18\x04\x00\x00\x00\x00\x16" + strings.Repeat("x", 30),
		"keyring, new":   "\xc5\x18\x06\x00\x00\x00\x00\x1b" + strings.Repeat("x", 30),
	}
}

// others hold no key, and look like it.
var others = map[string]string{
	"a program that reads keys": "\x7fELF\x00-----BEGIN OPENSSH PRIVATE KEY-----\n\x00-----END OPENSSH PRIVATE KEY-----\n\x00(private-key(rsa(n%m)))\x00AGE-SECRET-KEY-1\x00PuTTY-User-Key-File-",
	"a page about keys":         "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
	"a public key":              "-----BEGIN PUBLIC KEY-----\n" + "MCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END PUBLIC KEY-----\n",
	"a key on a card":           "Key: (shadowed-private-key (rsa (n #00#)))\n",
	"a keyring of public keys":  "\x99\x00\x18\x04\x00\x00\x00\x00\x16" + strings.Repeat("x", 30),
	"numbers":                   "\x05\x02\x7f\xff\xff\xff\x00\x02",
	"nothing":                   "",
}

func TestHolds(t *testing.T) {
	for name, key := range keys(t) {
		if !holds([]byte(key)) {
			t.Errorf("%s is not found: %q", name, key)
		}
	}
	for name, text := range others {
		if holds([]byte(text)) {
			t.Errorf("%s counts as a key: %q", name, text)
		}
	}
}

func FuzzHolds(f *testing.F) {
	for _, key := range keys(f) {
		f.Add([]byte(key))
	}
	for _, text := range others {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { holds(data) })
}

// TestFind: what scripts made is found wherever it lies, and what packages have where it is kept
// from users; each with a package to ask.
func TestFind(t *testing.T) {
	key := keys(t)["PKCS 8"]
	r := roottest.New(t, map[string]string{
		"etc/below.key":                        key,
		"var/lib/dpkg/info/mailer:amd64.list":  "/.\n/etc\n/etc/mailer\n/lib\n/lib/mailer\n/lib/mailer/own.key\n/usr/lib/mailer/test.key\n",
		"var/lib/dpkg/info/a.list":             "/.\n/etc\n",
		"var/lib/dpkg/info/b.list":             "/.\n/etc\n",
		"var/lib/dpkg/info/c.list":             "/.\n/etc\n",
		"var/lib/dpkg/info/mailer:amd64.prerm": "",
	})
	if err := os.Symlink("usr/lib", filepath.Join(r.Lowers[0], "lib")); err != nil {
		t.Fatal(err)
	}
	roottest.Put(t, r.Upper, map[string]string{
		"etc/mailer/tls/made.key": key, "etc/odd": key, "usr/lib/mailer/own.key": key, "usr/lib/mailer/test.key": key, "etc/mailer/config": "x",
	})
	if err := os.Symlink("odd", filepath.Join(r.Upper, "etc/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(r.Upper, "usr/lib/mailer/own.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	got, err := FindPrivate(r)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/etc/mailer/tls/made.key": "made by a script, in a directory of package mailer",
		"/etc/odd":                 "made by a script",
		"/usr/lib/mailer/own.key":  "of package mailer",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	list := DescribePrivate(got, []string{"/etc/odd", "/nowhere"})
	if diff := cmp.Diff([]string{"/etc/mailer/tls/made.key (made by a script, in a directory of package mailer)", "/usr/lib/mailer/own.key (of package mailer)"}, list); diff != "" {
		t.Error(diff)
	}
}
