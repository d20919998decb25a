// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
)

// Info says what a key is, as the verbs of keys -o json print it.
type Info struct {
	ID        string `json:"id"`                  // base64 of the SHA-256 of the public key, as in signatures
	Private   string `json:"private,omitempty"`   // file
	Public    string `json:"public,omitempty"`    // file
	Encrypted bool   `json:"encrypted,omitempty"` // a passphrase that is not empty opens it
	PEM       string `json:"pem"`                 // the public key
}

// Write prints the key for people.
func (i Info) Write(w io.Writer) { _, _ = fmt.Fprintf(w, "id %s\n%s", i.ID, i.PEM) } // Output keeps a write that failed

// MakePair writes both halves of a key, as [WritePair] does.
func MakePair(key *ecdsa.PrivateKey, name string, p *Passphrase) (i Info, err error) {
	pub := sign.VerifierOf(key)
	i = Info{ID: pub.ID(), Private: name + ".key", Public: name + ".pub", PEM: string(pub.PEM())}
	i.Encrypted, err = WritePair(key, name, p)
	return i, err
}

// MakeBoot makes a boot key and its certificate, whose text is the public half here.
func MakeBoot(name string, p *Passphrase, at time.Time) (i Info, err error) {
	i = Info{Private: name + ".key", Public: name + ".crt"}
	if i.Encrypted, err = GenerateBoot(name, p, at); err != nil {
		return i, err
	}
	boot, err := ReadBoot(i.Private, i.Public, p)
	if err != nil {
		return i, err
	}
	sum := sha256.Sum256(boot.Certificate().RawSubjectPublicKeyInfo)
	i.ID = base64.StdEncoding.EncodeToString(sum[:])
	i.PEM = string(pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: boot.Certificate().Raw}))
	return i, nil
}

// InfoOf returns what the text of a file is, which has a private or a public key.
func InfoOf(file string, text []byte, p *Passphrase) (Info, error) {
	if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
		key, err := Open(file, p)
		if err != nil {
			return Info{}, err
		}
		pub := sign.VerifierOf(key)
		return Info{ID: pub.ID(), Private: file, Encrypted: needsPassphrase(text), PEM: string(pub.PEM())}, nil
	}
	pub, err := sign.ParsePublic(text)
	if err != nil {
		return Info{}, cli.WithHint(fmt.Errorf("read key %s: %w", file, err),
			"it takes a public or a private key, or caisson.keys, which has the keys of a site")
	}
	return Info{ID: pub.ID(), Public: file, PEM: string(pub.PEM())}, nil
}

// needsPassphrase reports whether more than the empty passphrase is needed.
func needsPassphrase(text []byte) bool {
	_, err := Parse(text, nil)
	return IsEncrypted(text) && errors.Is(err, ErrPassphrase)
}
