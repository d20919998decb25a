// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

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
