// SPDX-License-Identifier: Apache-2.0

// Package certified makes keys of RSA with their certificates. Only tests import it.
package certified

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// Key makes a key, and the certificate that it signed for itself.
func Key(t testing.TB, name string) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	return By(t, nil, nil, name)
}

// By makes a key, and the certificate that an authority signed for it.
func By(t testing.TB, signer *rsa.PrivateKey, authority *x509.Certificate, name string) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(8), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0),
		IsCA: true, BasicConstraintsValid: true}
	if signer == nil {
		signer, authority, is.ExtKeyUsage = key, is, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	}
	der, err := x509.CreateCertificate(rand.Reader, is, authority, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, certificate
}

// Boot is a boot key of a site.
type Boot struct {
	*rsa.PrivateKey
	certificate *x509.Certificate
}

// NewBoot makes one.
func NewBoot(t testing.TB) *Boot {
	key, certificate := Key(t, "boot")
	return &Boot{key, certificate}
}

// Certificate returns the key's certificate.
func (b *Boot) Certificate() *x509.Certificate { return b.certificate }

// Open returns what signs.
func (b *Boot) Open() (crypto.Signer, error) { return b.PrivateKey, nil }
