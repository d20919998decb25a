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
	"net/url"
	"sync/atomic"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// life is how long a certificate is good for. Another takes its place where it is installed again
// and a third is left.
const life = 10 * 365 * 24 * time.Hour

// pair is a certificate, its key, and the authorities that the API server is to know: its
// own, and those of certificates that other instances may still show.
type pair struct{ cert, key, authorities []byte }

// newPair makes a certificate by an authority of its own, whose key nobody keeps.
func newPair(name string, now time.Time, old []byte) (pair, error) {
	authority := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()),
		Subject: pkix.Name{CommonName: "caisson-kube webhook authority"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: name},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
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

// Name is the name of the webhook's objects: its configuration, and the Secret with its
// certificate.
const Name = "caisson-kube-webhook"

// Keeper shows the webhook's certificate: one for all instances, in a Secret that is there. With
// other rights it installs it, and its authority in the webhook's configuration.
type Keeper struct {
	Client    client.Client // writes, where it installs
	Reader    client.Reader // reads what is there, not what is in memory
	Namespace string        // of the Secret
	Every     time.Duration
	Now       func() time.Time

	now atomic.Pointer[tls.Certificate]
}

// NeedLeaderElection says that each instance has the certificate.
func (*Keeper) NeedLeaderElection() bool { return false }

// soon is when it is tried again after it failed: it is not installed yet.
const soon = 5 * time.Second

// Start keeps it until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		again := k.Every
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "read the webhook's certificate")
			again = soon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// configuration returns that of the webhook, and the name by which API servers call it.
func (k *Keeper) configuration(ctx context.Context) (*registration.ValidatingWebhookConfiguration, string, error) {
	c := &registration.ValidatingWebhookConfiguration{}
	if err := k.Reader.Get(ctx, client.ObjectKey{Name: Name}, c); err != nil {
		return nil, "", fmt.Errorf("read the webhook's configuration: %w", err)
	}
	for _, w := range c.Webhooks {
		if s := w.ClientConfig.Service; s != nil {
			return c, s.Name + "." + s.Namespace + ".svc", nil
		}
		if w.ClientConfig.URL != nil {
			u, err := url.Parse(*w.ClientConfig.URL)
			if err != nil {
				return nil, "", fmt.Errorf("read the webhook's configuration: %w", err)
			}
			return c, u.Hostname(), nil
		}
	}
	return nil, "", fmt.Errorf("the webhook's configuration %s says no address", Name)
}

// secret returns what is kept, and its version.
func (k *Keeper) secret(ctx context.Context) (pair, string, error) {
	s := &corev1.Secret{}
	if err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: Name}, s); err != nil {
		return pair{}, "", fmt.Errorf("read the webhook's certificate: %w", err)
	}
	return pair{s.Data["tls.crt"], s.Data["tls.key"], s.Data["ca.crt"]}, s.ResourceVersion, nil
}

// store keeps a certificate where nobody has stored another since.
func (k *Keeper) store(ctx context.Context, p pair, version string) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: Name, ResourceVersion: version}}
	base := s.DeepCopy()
	s.Data = map[string][]byte{"tls.crt": p.cert, "tls.key": p.key, "ca.crt": p.authorities}
	if err := k.Client.Patch(ctx, s, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("store the webhook's certificate: %w", err)
	}
	return nil
}

// announce tells API servers whose certificates to trust.
func (k *Keeper) announce(ctx context.Context, c *registration.ValidatingWebhookConfiguration, authorities []byte) error {
	base := c.DeepCopy()
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = authorities
	}
	if err := k.Client.Patch(ctx, c, client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("write the webhook's authority: %w", err)
	}
	return nil
}
