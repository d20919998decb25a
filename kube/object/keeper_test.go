// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/kube/test/kubetest"
)

// TestCertificate: one certificate for all instances, whose authority API servers know, and
// a new one before it ends; the one before counts until then.
func TestCertificate(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "caisson-system")
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-f", "../deploy/base/webhook.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	now := time.Now()
	instance := func() *Keeper {
		return &Keeper{Client: c.Admin, Reader: c.Admin, Namespace: "caisson-system", Now: func() time.Time { return now }}
	}
	look := func(k *Keeper) {
		t.Helper()
		if err := errors.Join(k.Install(t.Context()), k.look(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	bundle := func() []byte {
		t.Helper()
		w := &registration.ValidatingWebhookConfiguration{}
		if err := c.Admin.Get(t.Context(), client.ObjectKey{Name: Webhook}, w); err != nil {
			t.Fatal(err)
		}
		return w.Webhooks[0].ClientConfig.CABundle
	}
	a, b := instance(), instance()
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("there is a certificate before there is one")
	}
	if err := a.look(t.Context()); err == nil || !strings.Contains(err.Error(), "caisson-kube --install-webhook") {
		t.Errorf("before it is installed: %v", err)
	}
	look(a)
	look(b)
	first := bundle()
	if len(first) == 0 || !bytes.Equal(a.now.Load().Leaf.Raw, b.now.Load().Leaf.Raw) {
		t.Error("two instances show two certificates")
	}
	if err := a.now.Load().Leaf.VerifyHostname("caisson-kube-webhook.caisson-system.svc"); err != nil {
		t.Error(err)
	}
	old := a.now.Load().Leaf

	// Somebody wrote the configuration again.
	if out, err := c.Kubectl(t, "", "patch", "validatingwebhookconfiguration", Webhook, "--type=json", "-p", `[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	look(b)
	if !bytes.Equal(bundle(), first) {
		t.Error("the authority is not put back")
	}

	now = now.Add(life*2/3 + time.Hour)
	look(a)
	if bytes.Equal(a.now.Load().Leaf.Raw, old.Raw) {
		t.Error("the certificate ends, and is not made again")
	}
	if _, err := (pair{cert: mustSecret(t, a).cert, key: mustSecret(t, a).key, authorities: bundle()}).open("caisson-kube-webhook.caisson-system.svc", now); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(bundle(), first) {
		t.Error("what the other instance shows is not believed any more")
	}
	look(b)
	if !bytes.Equal(a.now.Load().Leaf.Raw, b.now.Load().Leaf.Raw) {
		t.Error("the other instance does not follow")
	}
}

func mustSecret(t *testing.T, k *Keeper) pair {
	t.Helper()
	p, _, err := k.secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}
