// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"filippo.io/age/armor"
	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/spec/site"
)

// TestIdentities: what people have for a key opens files, or is named for what it is.
func TestIdentities(t *testing.T) {
	private := func(key crypto.PrivateKey, passphrase string) []byte {
		block, err := ssh.MarshalPrivateKey(key, "a comment")
		if passphrase != "" {
			block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "a comment", []byte(passphrase))
		}
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(block)
	}
	sealed := func(armoured bool, text string, to ...age.Recipient) []byte {
		var out bytes.Buffer
		var into io.WriteCloser = struct {
			io.Writer
			io.Closer
		}{&out, io.NopCloser(nil)}
		if armoured {
			into = armor.NewWriter(&out)
		}
		w, err := age.Encrypt(into, to...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Close(), into.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	_, edwards, _ := ed25519.GenerateKey(nil) // it cannot fail, as what follows
	rivest, _ := rsa.GenerateKey(rand.Reader, 2048)
	curve, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	passphrase, err := age.NewScryptRecipient("of age")
	if err != nil {
		t.Fatal(err)
	}
	passphrase.SetWorkFactor(10)
	own, _ := age.GenerateX25519Identity()
	var all []age.Recipient
	for _, key := range []crypto.Signer{edwards, rivest} {
		public, _ := ssh.NewPublicKey(key.Public())
		to, err := agessh.ParseRecipient(string(ssh.MarshalAuthorizedKey(public)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, to)
	}
	file := sealed(true, "value", append(all, own.Recipient())...)
	for name, a := range map[string]struct {
		text []byte
		err  string
	}{
		"of age":                          {[]byte("# a comment\n" + own.String() + "\n"), ""},
		"ed25519":                         {private(edwards, ""), ""},
		"RSA":                             {private(rivest, ""), ""},
		"SSH with a passphrase":           {private(edwards, "of ssh"), "an SSH key with a passphrase"},
		"ECDSA":                           {private(curve, ""), "not an SSH key that age"},
		"of age with a passphrase":        {sealed(false, own.String(), passphrase), "its key has a passphrase"},
		"of age with one, in armour":      {sealed(true, own.String(), passphrase), "its key has a passphrase"},
		"an SSH key's public half":        {[]byte("ssh-ed25519 AAAA a comment\n"), "no key of age"},
		"of age, as it must not be shown": {[]byte(own.String()[:40]), "no key of age"},
	} {
		t.Run(name, func(t *testing.T) {
			var i Identities
			err := i.Add("id", a.text)
			if a.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				if value, err := i.open(site.Secret{File: "db.age", Data: file}); err != nil || string(value) != "value" {
					t.Errorf("%q, %v", value, err)
				}
				return
			}
			var mend interface{ Hint() string }
			if err == nil || !strings.Contains(err.Error(), a.err) || !errors.As(err, &mend) || strings.Contains(err.Error(), "AGE-SECRET") {
				t.Errorf("%v", err)
			}
		})
	}
}
