// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Name is what the webhook's objects are called: its configuration, and the Secret with its
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

// announce tells API servers whose certificates to believe.
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
