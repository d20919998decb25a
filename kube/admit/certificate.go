// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// life is how long a certificate is good for. Another takes its place where it is installed again
// and a third is left.
const life = 10 * 365 * 24 * time.Hour

// pair is a certificate, its key, and the authorities that the API server is to know: its
// own, and those of certificates that other instances may still show.
type pair struct{ cert, key, authorities []byte }

// newPair makes a certificate by an authority of its own, whose key nobody keeps.
func newPair(name string, now time.Time, old []byte) (pair, error) {
	authority := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "caisson-kube webhook authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: name}, NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{name}
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, signer.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), signer)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	first, _ := pem.Decode(old) // of the certificate that this one follows
	authorities := block("CERTIFICATE", ca)
	if first != nil {
		authorities = append(authorities, pem.EncodeToMemory(first)...)
	}
	return pair{block("CERTIFICATE", cert), block("PRIVATE KEY", der), authorities}, nil
}

// open returns the certificate if it is good for a name, and for a while.
func (p pair) open(name string, now time.Time) (*tls.Certificate, error) {
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.authorities) {
		return nil, errors.New("it has no authority")
	}
	if _, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: now}); err != nil {
		return nil, err
	}
	if now.After(c.Leaf.NotAfter.Add(-life / 3)) {
		return nil, fmt.Errorf("it ends at %s", c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return &c, nil
}

// GetCertificate is the server's.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.now.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Install makes a certificate where the Secret has none, or one that ends, and has API servers know
// its authority.
func (k *Keeper) Install(ctx context.Context) error {
	hook, name, err := k.configuration(ctx)
	if err != nil {
		return err
	}
	p, version, err := k.secret(ctx)
	if err != nil {
		return err
	}
	if _, err := p.open(name, k.Now()); err != nil {
		if p, err = newPair(name, k.Now(), p.authorities); err != nil {
			return fmt.Errorf("make a certificate: %w", err)
		}
		if err := k.store(ctx, p, version); err != nil {
			return err
		}
	}
	for i := range hook.Webhooks {
		if !bytes.Equal(hook.Webhooks[i].ClientConfig.CABundle, p.authorities) {
			return k.announce(ctx, hook, p.authorities)
		}
	}
	return nil
}

// look takes the certificate that the Secret has.
func (k *Keeper) look(ctx context.Context) error {
	p, _, err := k.secret(ctx)
	if err != nil {
		return err
	}
	c, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return fmt.Errorf("the webhook's certificate, which 'caisson-kube --install-webhook' makes: %w", err)
	}
	k.now.Store(&c)
	return nil
}
