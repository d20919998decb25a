// SPDX-License-Identifier: Apache-2.0

// Private keys stand in files as cosign's encrypted PEM, as PKCS#8 and as SEC 1: ECDSA P-256 and,
// of role boot, RSA-2048. This is apart from oci/sign because nodes only verify: the agent links
// neither scrypt nor a parser of private keys.

package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/oci/sign"
)

// PEM types of private keys.
const (
	pemCosign = "ENCRYPTED SIGSTORE PRIVATE KEY"
	pemOlder  = "ENCRYPTED COSIGN PRIVATE KEY"
	pemPKCS8  = "PRIVATE KEY"
	pemSEC1   = "EC PRIVATE KEY"
)

// ErrPassphrase is returned for an encrypted key that the passphrase does not open.
var ErrPassphrase = errors.New("the passphrase does not open the key")

// Cost is scrypt's N of the keys that [Marshal] writes: cosign's, which takes 64 MiB and
// some 200 ms, and is the cost that cosign wants of a key that it reads. Tests of the command line,
// which read keys by the hundred, lower it and [MinCost].
var Cost = 1 << 16

// MinCost is the least N of a key that is read.
var MinCost = 1 << 14

// envelope is the JSON within cosign's PEM block. []byte fields are base64.
type envelope struct {
	KDF struct {
		Name   string `json:"name"`
		Params struct {
			N int `json:"N"`
			R int `json:"r"`
			P int `json:"p"`
		} `json:"params"`
		Salt []byte `json:"salt"`
	} `json:"kdf"`
	Cipher struct {
		Name  string `json:"name"`
		Nonce []byte `json:"nonce"`
	} `json:"cipher"`
	Ciphertext []byte `json:"ciphertext"`
}

// Marshal encrypts a key as cosign does. The passphrase may be empty;
// then only the file's mode protects it.
func Marshal(key crypto.Signer, passphrase []byte) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var e envelope
	e.KDF.Name, e.Cipher.Name = "scrypt", "nacl/secretbox"
	e.KDF.Params.N, e.KDF.Params.R, e.KDF.Params.P = Cost, 8, 1
	e.KDF.Salt, e.Cipher.Nonce = make([]byte, 32), make([]byte, 24)
	rand.Read(e.KDF.Salt) // never fails, see crypto/rand
	rand.Read(e.Cipher.Nonce)
	box, err := e.key(passphrase)
	if err != nil {
		return nil, err
	}
	e.Ciphertext = secretbox.Seal(nil, der, (*[24]byte)(e.Cipher.Nonce), box)
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemCosign, Bytes: text}), nil
}

// IsEncrypted says whether a private key's PEM asks for a passphrase, which may
// still be the empty one.
func IsEncrypted(text []byte) bool {
	block, _ := pem.Decode(text)
	return block != nil && (block.Type == pemCosign || block.Type == pemOlder)
}

// Parse reads cosign's encrypted PEM, PKCS#8 or SEC 1.
func Parse(text, passphrase []byte) (*ecdsa.PrivateKey, error) {
	key, err := parseBlock(text, passphrase)
	if err != nil {
		return nil, err
	}
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok || k.Curve != elliptic.P256() {
		return nil, errors.New("the private key is not ECDSA P-256")
	}
	return k, nil
}

// ParseRSA reads the same of RSA-2048: firmware takes no other key everywhere.
func ParseRSA(text, passphrase []byte) (*rsa.PrivateKey, error) {
	key, err := parseBlock(text, passphrase)
	if err != nil {
		return nil, err
	}
	k, ok := key.(*rsa.PrivateKey)
	if !ok || k.N.BitLen() != 2048 {
		return nil, errors.New("the private key is not RSA-2048")
	}
	return k, nil
}

func parseBlock(text, passphrase []byte) (any, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block with a private key")
	}
	switch block.Type {
	case pemCosign, pemOlder:
		der, err := openBox(block.Bytes, passphrase)
		if err != nil {
			return nil, err
		}
		return parsePKCS8(der)
	case pemPKCS8:
		return parsePKCS8(block.Bytes)
	case pemSEC1:
		key, err := x509.ParseECPrivateKey(block.Bytes)
		return key, fault.In(err, "private key")
	}
	return nil, fmt.Errorf("PEM block %q is not a private key that can be read here", block.Type)
}

func parsePKCS8(der []byte) (any, error) {
	key, err := x509.ParsePKCS8PrivateKey(der)
	return key, fault.In(err, "private key")
}

func openBox(text, passphrase []byte) ([]byte, error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("encrypted key: %w", err)
	}
	if e.KDF.Name != "scrypt" || e.Cipher.Name != "nacl/secretbox" || len(e.Cipher.Nonce) != 24 {
		return nil, fmt.Errorf("encrypted key: %.40q with %.40q is not known", e.KDF.Name, e.Cipher.Name)
	}
	box, err := e.key(passphrase)
	if err != nil {
		return nil, err
	}
	der, ok := secretbox.Open(nil, e.Ciphertext, (*[24]byte)(e.Cipher.Nonce), box)
	if !ok {
		return nil, ErrPassphrase
	}
	return der, nil
}

// key derives the box key. A file that asks for more than 1 GiB of memory is
// not answered.
func (e *envelope) key(passphrase []byte) (*[32]byte, error) {
	p := e.KDF.Params
	if p.N < MinCost || p.R < 1 || p.P < 1 || p.P > 8 || p.N > 1<<20 || p.R > 8 {
		return nil, fmt.Errorf("encrypted key: scrypt with N=%d r=%d p=%d is not known", p.N, p.R, p.P)
	}
	k, err := scrypt.Key(passphrase, e.KDF.Salt, p.N, p.R, p.P, 32)
	if err != nil {
		return nil, fmt.Errorf("encrypted key: %w", err)
	}
	return (*[32]byte)(k), nil
}

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

// Boot is a key of role boot: firmware and kernels know it by its certificate. It is RSA-2048, as
// firmware takes no P-256.
type Boot struct {
	certificate *x509.Certificate
	source      string
	open        func() (crypto.Signer, error) // once: a descriptor is read once, and a person asked once
}

// validity of a certificate is above every machine's life: neither firmware nor kernel looks at it.
const validity = 50 * 365 * 24 * time.Hour

// GenerateBoot writes NAME.key and the certificate NAME.crt, as [WritePair] writes a pair.
func GenerateBoot(name string, p *Passphrase, now time.Time) (encrypted bool, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return false, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return false, err
	}
	is := x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "caisson " + filepath.Base(name) + " " +
		now.UTC().Format(time.DateOnly)},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(validity), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}}
	der, err := x509.CreateCertificate(rand.Reader, &is, &is, key.Public(), key)
	if err != nil {
		return false, err
	}
	return writePair(key, name+".key", name+".crt", pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: der}), p)
}

const pemCertificate = "CERTIFICATE"

// ReadBoot reads the certificate of a key that stays closed until [Boot.Open]. Its source is as
// for [Signer]; that of a program signs by PKCS #1 v1.5.
func ReadBoot(source, certificate string, p *Passphrase) (*Boot, error) {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemCertificate {
		return nil, fmt.Errorf("read certificate %s: no PEM block with a certificate", certificate)
	}
	b := &Boot{source: source, open: sync.OnceValues(func() (crypto.Signer, error) { return BootSigner(source, p) })}
	if b.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", certificate, err)
	}
	if key, ok := b.certificate.PublicKey.(*rsa.PublicKey); !ok || key.N.BitLen() != 2048 {
		return nil, fmt.Errorf("read certificate %s: it is not of an RSA-2048 key", certificate)
	}
	if strings.HasPrefix(source, commandPrefix) {
		_, err = b.Open() // it gives no key away
		return b, err
	}
	return b, Check(source)
}

// Certificate is the public half.
func (b *Boot) Certificate() *x509.Certificate { return b.certificate }

// Open opens the key, which must be that of the certificate.
func (b *Boot) Open() (crypto.Signer, error) {
	key, err := b.open()
	if err != nil {
		return nil, err
	}
	if !b.certificate.PublicKey.(*rsa.PublicKey).Equal(key.Public()) {
		return nil, fmt.Errorf("key %s is not that of the certificate %q", b.source, b.certificate.Subject.CommonName)
	}
	return key, nil
}

// BootSigner opens a key of role boot of which no certificate is needed. Its source is as for [ReadBoot].
func BootSigner(source string, p *Passphrase) (crypto.Signer, error) {
	if command, ok := strings.CutPrefix(source, commandPrefix); ok {
		return holderOf(command, publicRSA)
	}
	return openAs(source, p, ParseRSA)
}

func publicRSA(text []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no PEM block with a public key")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if key, ok := public.(*rsa.PublicKey); err == nil && (!ok || key.N.BitLen() != 2048) {
		err = errors.New("the key is not RSA-2048")
	}
	return public, err
}
