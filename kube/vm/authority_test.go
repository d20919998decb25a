// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is a cluster's: kubelets know the API server by it, and it signs theirs.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "metal-a"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	a.cert, a.key = a.sign(template, nil)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return a
}

// sign makes a certificate and its key; without an authority it is its own.
func (a *authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	a.must(err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(0, 0, 7)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	a.must(err)
	cert, err := x509.ParseCertificate(raw)
	a.must(err)
	return cert, key
}

// serves writes what an API server of envtest finds in its directory: its certificate, which
// is good at some addresses, the key that signs for service accounts, and the authority's own.
func (a *authority) serves(dir string, at ...string) {
	a.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, ip := range at {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	cert, key := a.sign(template, a)
	a.write(dir, "apiserver", cert, key)
	a.write(dir, "sa-signer", a.cert, a.key)
	a.write(dir, "authority", a.cert, a.key)
}

// write writes NAME.crt and NAME.key.
func (a *authority) write(dir, name string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	a.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	a.must(os.WriteFile(filepath.Join(dir, name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o644))
	a.must(os.WriteFile(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

func (a *authority) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}
