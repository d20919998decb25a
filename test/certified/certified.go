// SPDX-License-Identifier: Apache-2.0

// Package certified makes keys of RSA with their certificates. Only tests import it.
package certified

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
	"time"
)

// Key makes a key, and the certificate that it signed for itself, as a boot key has it.
func Key(t testing.TB, name string) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	return certify(t, nil, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
}

// Authority makes a key that may sign certificates, and the one that it signed for itself.
func Authority(t testing.TB, name string) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	return certify(t, nil, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
}

// By makes a key that may sign certificates, and the one that an authority signed for it.
func By(t testing.TB, signer *rsa.PrivateKey, authority *x509.Certificate, name string) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	return certify(t, signer, authority, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true})
}

func certify(t testing.TB, signer *rsa.PrivateKey, authority, is *x509.Certificate) (*rsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	if signer == nil {
		signer, authority = key, is
	}
	is.NotBefore, is.NotAfter, is.BasicConstraintsValid = time.Unix(0, 0), time.Unix(1<<33, 0), true
	der, err := x509.CreateCertificate(rand.Reader, is, authority, key.Public(), signer) // its number is random
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
