// SPDX-License-Identifier: Apache-2.0

package object

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/caisson-os/caisson/kube/test/kubetest"
)

// TestFailurePolicy: a question that cannot be answered is one for the failurePolicy, as if
// nobody had been there; what is refused is refused under either.
func TestFailurePolicy(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	c.Namespace(t, "caisson-system")
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-f", "../deploy/base/webhook.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var asked atomic.Int64
	s := httptest.NewTLSServer(NewHandler(judge(func(u *unstructured.Unstructured) (Judgement, error) {
		asked.Add(1)
		switch {
		case strings.HasPrefix(u.GetName(), "wrong"):
			return Judgement{Wrong: []string{"it is wrong"}}, nil
		case strings.HasPrefix(u.GetName(), "right"):
			return Judgement{Warnings: []string{"so so"}}, nil
		}
		return Judgement{}, errors.New("no memory")
	}), nil, nil))
	t.Cleanup(s.Close)
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	policy := func(name string) {
		t.Helper()
		patch := fmt.Sprintf(`{"webhooks": [{"name": "objects.caisson.dev", "failurePolicy": %q, "clientConfig": {"service": null, "url": "%s/validate", "caBundle": %q}}]}`, name, s.URL, authority)
		if out, err := c.Kubectl(t, "", "patch", "validatingwebhookconfiguration", Webhook, "--type=strategic", "-p", patch); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	apply := func(name string) (string, error) {
		return c.Kubectl(t, "apiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: "+name+"}\nspec: {}\n", "apply", "--server-side", "--namespace", "metal-a", "-f", "-")
	}
	// until applies objects of a name until the API server has read its configuration.
	until := func(name string, ok func(out string, err error) bool) {
		t.Helper()
		var out string
		var err error
		for i, end := 0, time.Now().Add(2*time.Minute); time.Now().Before(end); i++ {
			if out, err = apply(fmt.Sprintf("%s-%d", name, i)); ok(out, err) {
				return
			}
			time.Sleep(200 * time.Millisecond) // it reads it by itself
		}
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	policy("Fail")
	until("wrong", func(out string, err error) bool { return err != nil && strings.Contains(out, "it is wrong") })
	if out, err := apply("unknown"); err == nil || !strings.Contains(out, "failed calling webhook") || !strings.Contains(out, "no memory") {
		t.Errorf("Fail: %v\n%s", err, out)
	}
	if out, err := apply("right"); err != nil || !strings.Contains(out, "Warning: so so") {
		t.Errorf("%v\n%s", err, out)
	}
	policy("Ignore")
	before := asked.Load()
	until("unknown", func(_ string, err error) bool { return err == nil })
	if asked.Load() == before {
		t.Error("Ignore: nobody was asked")
	}
	if out, err := apply("wrong"); err == nil || !strings.Contains(out, "it is wrong") {
		t.Errorf("Ignore: %v\n%s", err, out)
	}
}
