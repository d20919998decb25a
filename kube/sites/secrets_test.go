// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

// TestSecretsOfTheCluster: a Secret is read only where this signs and may, sealed to who was
// accepted, and what is published with it is what was approved.
func TestSecretsOfTheCluster(t *testing.T) {
	c := kubetest.Start(t)
	for _, name := range []string{"metal-a", "caisson-system"} {
		c.Namespace(t, name)
	}
	fleet := registryOf(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "metal-a", Name: "db"}, Data: map[string][]byte{"password": []byte("hunter2-the-first")}}
	if err := c.Admin.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(c.Env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:caisson-system:caisson-kube", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	api := kubetest.Client(t, config)
	bridge(t, c, func(r *sites.Reconciler) {
		accepted, err := seal.ReadRecipients(filepath.Join(r.Dir, "metal-a"))
		if err != nil {
			t.Fatal(err)
		}
		accepted.Nodes["n1"] = seal.Accepted{Node: "n1", Recipient: own.Recipient().String(), Since: time.Now().UTC().Truncate(time.Second)}
		if err := accepted.Write(); err != nil {
			t.Fatal(err)
		}
		r.Again = time.Second
		r.Secret = func(ctx context.Context, namespace, name, key string) ([]byte, error) {
			var s corev1.Secret
			err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &s)
			return s.Data[key], err
		}
	}, "metal-a")
	apply(t, c, "metal-a", head+"kind: Site\nmetadata: {name: metal-a}\nregistry: "+fleet+"\nnodes: [{name: n1}, {name: n2}]\n"+
		"secrets: {db: {secretRef: {name: db, key: password}}}\nconf: {files: {/etc/db: {secret: db}}}\n")
	refused := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "False CannotPlan")
	if !strings.Contains(refused, "secret db: ") || !strings.Contains(refused, "forbidden") {
		t.Errorf("without the component it says %q", refused)
	}

	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-f", filepath.Join("..", "deploy", "secrets", "role.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True Changes")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	plan := func() string {
		p, _, _ := unstructured.NestedString(get(t, c.Admin, cluster.Site, "metal-a", "metal-a").Object, "status", "plan")
		return p
	}
	first := plan()
	if first == "" {
		t.Fatal("no digest of a plan")
	}
	approve := func(name, plan string) {
		apply(t, c, "metal-a", head+"kind: PublishApproval\nmetadata: {name: "+name+"}\nspec: {plan: \""+plan+"\", author: eve}\n")
	}
	approve("first", first) // looks since then sealed nothing again
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	if got := opened(t, fleet, "n1", own); got != "hunter2-the-first" {
		t.Errorf("the node opens %q", got)
	}
	if got := opened(t, fleet, "n2", own); got != "" {
		t.Errorf("a node that nobody accepted has %q", got)
	}

	// Another value is another plan, which nobody has approved.
	secret.Data["password"] = []byte("hunter3")
	if err := c.Admin.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	eventually(t, func() error {
		if p := plan(); p == first || p == "" {
			return fmt.Errorf("the plan is %q", p)
		}
		return nil
	})
	approve("second", plan())
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	eventually(t, func() error {
		if got := opened(t, fleet, "n1", own); got != "hunter3" {
			return fmt.Errorf("the node opens %q", got)
		}
		return nil
	})
	for _, kind := range []string{"sites", "events"} {
		if out, err := c.Kubectl(t, "", "get", kind, "--namespace", "metal-a", "-o", "yaml"); err != nil || strings.Contains(out, "hunter") || strings.Contains(out, base64.StdEncoding.EncodeToString([]byte("hunter3"))) {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
}

// TestNobodyReadsSecrets: who does not sign asks for no Secret, and says that what was sealed
// is not known there.
func TestNobodyReadsSecrets(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	bridge(t, c, func(r *sites.Reconciler) {
		r.Signers = nil
		r.Secret = func(context.Context, string, string, string) ([]byte, error) {
			t.Error("a Secret is asked for")
			return nil, errors.New("no")
		}
	}, "metal-a")
	apply(t, c, "metal-a", head+"kind: Site\nmetadata: {name: metal-a}\nregistry: "+registryOf(t)+"\nnodes: [{name: n1}]\n"+
		"secrets: {db: {secretRef: {name: db, key: password}}}\nconf: {files: {/etc/db: {secret: db}}, exec: {x.sh: {data: \"true\", env: {TOKEN: {secret: db}}}}}\n")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False NobodySigns")
}

// opened is what a node would open of what is published for it, "" where there is nothing.
func opened(t *testing.T, ref, node string, own *age.X25519Identity) string {
	t.Helper()
	reg, err := registry.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	p := &publish.Publisher{Reader: published.Reader{Registry: reg, Now: time.Now().UTC().Truncate(time.Second), Say: func(string, ...any) {}}}
	f, err := p.Find(t.Context(), published.Policy{Operator: trusted, Threshold: 1})
	if err != nil {
		t.Fatal(err)
	}
	o, err := f.Overlay(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	one := o.Secret("db")
	if one == nil {
		return ""
	}
	sealed, err := base64.StdEncoding.DecodeString(one.Sealed)
	if err != nil {
		t.Fatal(err)
	}
	in, err := age.Decrypt(bytes.NewReader(sealed), own)
	if err != nil {
		t.Fatal(err)
	}
	value, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(value)
}
