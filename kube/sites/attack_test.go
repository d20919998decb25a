// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"crypto"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/caisson-os/caisson/fleet/preview"
	"github.com/caisson-os/caisson/kube/object"
	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

func siteObject(name, registry, rest string) string {
	return head + "kind: Site\nmetadata: {name: " + name + "}\nregistry: " + registry + "\nnodes: [{name: n1}]\n" + rest
}

// TestAttacks has what enemies with a foot in the cluster try: docs/security.md lists them.
func TestAttacks(t *testing.T) {
	c := kubetest.Start(t)
	c.Controllers(t, "clusterrole-aggregation-controller")
	for _, name := range []string{"metal-a", "metal-b", "other"} {
		c.Namespace(t, name)
	}
	if out, err := c.Kubectl(t, "", "apply", "--server-side", "-f", filepath.Join("..", "deploy", "base", "people.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fleet := registryOf(t)
	bridge(t, c, nil, "metal-a", "metal-b", "metal-d", "metal-e", "other", "large", "many")
	apply(t, c, "metal-a", siteObject("metal-a", fleet, ""))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	plan := func() string {
		s, _, _ := unstructured.NestedString(get(t, c.Admin, cluster.Site, "metal-a", "metal-a").Object, "status", "plan")
		return s
	}

	t.Run("another namespace takes the fleet's name", func(t *testing.T) {
		apply(t, c, "other", siteObject("metal-a", fleet, ""))
		says := condition(t, c.Admin, cluster.Site, "other", "metal-a", "Valid", "False FleetTaken")
		if !strings.Contains(says, "namespace metal-a") {
			t.Errorf("it says %q", says)
		}
	})

	t.Run("no Site in the namespace", func(t *testing.T) {
		c.Namespace(t, "empty")
		apply(t, c, "empty", head+"kind: NodeSet\nmetadata: {name: alone}\nspec: {}\n")
		if says := condition(t, c.Admin, "NodeSet", "empty", "alone", "Valid", "False Invalid"); !strings.Contains(says, "no Site") {
			t.Errorf("it says %q", says)
		}
	})

	t.Run("a second Site in the namespace", func(t *testing.T) {
		apply(t, c, "metal-b", siteObject("metal-b", fleet+"-b", "")+siteObject("metal-c", fleet+"-c", ""))
		condition(t, c.Admin, cluster.Site, "metal-b", "metal-c", "Valid", "False Invalid")
		condition(t, c.Admin, cluster.Site, "metal-b", "metal-c", "Planned", "False Invalid")
	})

	t.Run("a namespace admin approves himself", func(t *testing.T) {
		if out, err := c.Kubectl(t, "", "create", "rolebinding", "mallory", "--namespace", "metal-a", "--clusterrole", "admin", "--user", "mallory"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		mallory := kubetest.Client(t, c.User(t, "mallory"))
		set := objectOf("NodeSet", "metal-a", "mine", map[string]any{"spec": map[string]any{}})
		eventually(t, func() error { return mallory.Create(t.Context(), set) }) // once roles are aggregated
		condition(t, c.Admin, "NodeSet", "metal-a", "mine", "Valid", "True Valid")
		approval := objectOf(cluster.PublishApproval, "metal-a", "mine", map[string]any{"spec": map[string]any{"plan": plan(), "author": "mallory"}})
		if err := mallory.Create(t.Context(), approval); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("an approval of his own: %v", err)
		}
		forged := get(t, mallory, cluster.Site, "metal-a", "metal-a")
		if err := unstructured.SetNestedField(forged.Object, "sha256:forged", "status", "plan"); err != nil {
			t.Fatal(err)
		}
		if err := mallory.Status().Update(t.Context(), forged); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("a status of his own: %v", err)
		}
	})

	t.Run("an approval in another namespace, and of another plan", func(t *testing.T) {
		for namespace, plan := range map[string]string{"other": plan(), "metal-a": preview.Act + "sha256:" + strings.Repeat("0", 64)} {
			apply(t, c, namespace, head+"kind: PublishApproval\nmetadata: {name: x}\nspec: {plan: \""+plan+"\", author: mallory}\n")
		}
		apply(t, c, "metal-a", head+"kind: NodeSet\nmetadata: {name: again}\nspec: {}\n")
		condition(t, c.Admin, "NodeSet", "metal-a", "again", "Valid", "True Valid")
		condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	})

	t.Run("an approval that was used, and one that was not", func(t *testing.T) {
		c.Namespace(t, "metal-d")
		fleet := registryOf(t)
		site := func(swappiness string) string {
			return siteObject("metal-d", fleet, "conf: {sysctl: {vm.swappiness: \""+swappiness+"\"}}\n")
		}
		put := func(swappiness string) {
			t.Helper()
			apply(t, c, "metal-d", site(swappiness))
			plan := waitsFor(t, c, "metal-d", "")
			approve(t, c, "metal-d", "of-"+swappiness, plan)
			condition(t, c.Admin, cluster.Site, "metal-d", "metal-d", "Published", "True Published")
		}
		put("10")
		apply(t, c, "metal-d", site("40"))
		unused := waitsFor(t, c, "metal-d", "") // approved below, when the objects say something else
		put("20")
		approve(t, c, "metal-d", "of-40", unused)
		for _, swappiness := range []string{"10", "40"} { // the admin of the namespace goes back
			apply(t, c, "metal-d", site(swappiness))
			waitsFor(t, c, "metal-d", "")
		}
		if n, _, _ := unstructured.NestedInt64(get(t, c.Admin, cluster.Site, "metal-d", "metal-d").Object, "status", "generation"); n != 2 {
			t.Errorf("generation %d is published, want 2", n)
		}
	})

	t.Run("an approval of the same overlays, and of another act around them", func(t *testing.T) {
		c.Namespace(t, "metal-e")
		fleet, elsewhere := registryOf(t), registryOf(t)
		rollout := "---\n" + head + "kind: Rollout\nmetadata: {name: slow}\nspec: {waves: [{count: 1}]}\n"
		apply(t, c, "metal-e", siteObject("metal-e", fleet, "")+rollout)
		agreed := waitsFor(t, c, "metal-e", "")
		apply(t, c, "metal-e", siteObject("metal-e", elsewhere, ""))
		waitsFor(t, c, "metal-e", agreed)
		approve(t, c, "metal-e", "one", agreed)
		apply(t, c, "metal-e", head+"kind: PublishApproval\nmetadata: {name: before}\nspec: {plan: \""+strings.TrimPrefix(agreed, preview.Act)+"\", author: eve}\n")
		still := func() {
			t.Helper()
			waitsFor(t, c, "metal-e", agreed)
			eventually(t, func() error {
				if says := condition(t, c.Admin, cluster.Site, "metal-e", "metal-e", "Published", "False WaitsForApproval"); !strings.Contains(says, "of the old kind") {
					return fmt.Errorf("it says %q", says)
				}
				return nil
			})
		}
		still()
		apply(t, c, "metal-e", siteObject("metal-e", fleet, "trust: {expires: 3650d}\n"))
		still()
		if out, err := c.Kubectl(t, "", "delete", "rollout", "slow", "--namespace", "metal-e"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		apply(t, c, "metal-e", siteObject("metal-e", fleet, ""))
		still()
		if n, _, _ := unstructured.NestedInt64(get(t, c.Admin, cluster.Site, "metal-e", "metal-e").Object, "status", "generation"); n != 0 {
			t.Errorf("generation %d is published", n)
		}
	})

	t.Run("a signature is forged, and one is of another fleet", func(t *testing.T) {
		stranger, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		for name, one := range map[string]struct {
			by    crypto.Signer
			fleet string
			plan  string
		}{
			"stranger": {stranger, "metal-a", plan()},
			"fleet":    {signer, "metal-b", plan()},
			"plan":     {signer, "metal-a", preview.Act + "sha256:" + strings.Repeat("0", 64)},
		} {
			statements, err := preview.Approve([]crypto.Signer{one.by}, one.plan, sign.ApprovalPredicate{Fleet: one.fleet, Author: "mallory", IssuedAt: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			object := cluster.NewApproval("", "forged-"+name, cluster.ApprovalSpec{Plan: plan(), Author: "eve", Statements: statements})
			text, err := object.YAML()
			if err != nil {
				t.Fatal(err)
			}
			apply(t, c, "metal-a", string(text))
			eventually(t, func() error {
				says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
				if !strings.Contains(says, "PublishApproval forged-"+name+" does not count: ") {
					return fmt.Errorf("it says %q", says)
				}
				return nil
			})
		}
	})

	t.Run("a status is forged", func(t *testing.T) {
		if out, err := c.Kubectl(t, "", "patch", "site", "metal-a", "--namespace", "metal-a", "--subresource=status", "--type=merge", "-p", `{"status": {"plan": "sha256:0", "generation": 99}}`); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		apply(t, c, "metal-a", head+"kind: NodeSet\nmetadata: {name: third}\nspec: {}\n") // the next look
		condition(t, c.Admin, "NodeSet", "metal-a", "third", "Valid", "True Valid")
		eventually(t, func() error {
			if p := plan(); p == "sha256:0" || !strings.HasPrefix(p, preview.Act) {
				return os.ErrInvalid
			}
			return nil
		})
		condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	})

	t.Run("an object names a file", func(t *testing.T) {
		for field, says := range map[string]string{
			"include: [/etc/shadow]\n":                                 "include reads files where the site is published",
			"values: [/etc/shadow]\n":                                  "values reads files where the site is published",
			"inventory: [/etc/shadow]\n":                               "inventory",
			"secrets: {db: {file: /etc/shadow}}\n":                     "file reads a file where the site is published",
			"secrets: {db: {command: [cat, /etc/shadow]}}\n":           "command runs a program where the site is published",
			"trust: {keys: {operator: [mine.pub]}}\n":                  "keys reads files where the site is published",
			"layer: {base: {tar: /etc/shadow}}\n":                      "tar reads a file where the site is published",
			"conf: {exec: {x.sh: {data: x, file: /etc/shadow}}}\n":     "file reads a file where the site is published",
			"machine: {cas: [/etc/shadow]}\n":                          "-----BEGIN",
			"conf: {apparmor: {profiles: {x: {file: /etc/shadow}}}}\n": "expected string",
		} {
			out, err := c.Kubectl(t, siteObject("metal-a", fleet, field), "apply", "--server-side", "--force-conflicts", "--namespace", "metal-a", "-f", "-")
			if err == nil || !strings.Contains(out, says) {
				t.Errorf("%s: %v\n%s", field, err, out)
			}
		}
		out, err := c.Kubectl(t, siteObject("metal-a", "oci:/etc/cron.d", ""), "apply", "--server-side", "--force-conflicts", "--namespace", "metal-a", "-f", "-")
		if err == nil || !strings.Contains(out, "registry writes into a directory where the site is published") {
			t.Errorf("%v\n%s", err, out)
		}
	})

	t.Run("YAML that JSON cannot say", func(t *testing.T) {
		out, err := c.Kubectl(t, siteObject("metal-a", fleet, "conf: {files: {motd: {path: /etc/motd, content: x, mode: 0640}}}\n"), "apply", "--server-side", "--force-conflicts", "--namespace", "metal-a", "-f", "-")
		if err == nil || !strings.Contains(out, ".conf.files.motd.mode: expected string") {
			t.Errorf("%v\n%s", err, out)
		}
	})

	t.Run("an object of 1.5 MB", func(t *testing.T) {
		c.Namespace(t, "large")
		put := func(size int) (string, error) {
			return c.Kubectl(t, siteObject("large", fleet+"-large", "conf: {files: {motd: {path: /etc/motd, content: \""+strings.Repeat("x", size)+"\"}}}\n"), "apply", "--server-side", "--force-conflicts", "--namespace", "large", "-f", "-")
		}
		const most = 3 << 19 // that etcd takes
		if out, err := put(most); err == nil || !strings.Contains(out, "etcdserver: request is too large") {
			t.Errorf("a file of 1.5 MiB in it: %v\n%.200s", err, out)
		}
		if out, err := put(2 * most); err == nil {
			t.Errorf("a file of 3 MiB in it was taken\n%.200s", out)
		}
		// What is left is too little for a status.
		size := most
		eventually(t, func() error {
			size -= 200
			out, err := put(size)
			if err != nil && !strings.Contains(out, "etcdserver: request is too large") {
				t.Fatalf("%v\n%.200s", err, out)
			}
			return err
		})
		apply(t, c, "large", head+"kind: NodeSet\nmetadata: {name: beside}\nspec: {}\n")
		condition(t, c.Admin, "NodeSet", "large", "beside", "Valid", "True Valid") // others have theirs
		if status := get(t, c.Admin, cluster.Site, "large", "large").Object["status"]; status != nil {
			t.Errorf("%d bytes leave room for a status: %v", size, status)
		}
		if out, err := put(10 << 10); err != nil {
			t.Fatalf("%v\n%.200s", err, out)
		}
		condition(t, c.Admin, cluster.Site, "large", "large", "Valid", "True Valid")
	})

	t.Run("5,000 objects", func(t *testing.T) {
		c.Namespace(t, "many")
		apply(t, c, "many", siteObject("many", fleet+"-many", ""))
		condition(t, c.Admin, cluster.Site, "many", "many", "Valid", "True Valid")
		fast := rest.CopyConfig(c.Env.Config)
		fast.QPS = -1
		mallory := kubetest.Client(t, fast)
		var wg sync.WaitGroup
		for worker := range 10 {
			wg.Go(func() {
				for i := worker; i < 5000; i += 10 {
					if err := mallory.Create(t.Context(), objectOf("NodeSet", "many", fmt.Sprintf("s%d", i), map[string]any{"spec": map[string]any{}})); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		apply(t, c, "metal-a", head+"kind: NodeSet\nmetadata: {name: meanwhile}\nspec: {match: {hosts: [\"[\"]}}\n")
		condition(t, c.Admin, "NodeSet", "metal-a", "meanwhile", "Valid", "False Invalid") // others are looked at
	})
}

// TestThiefOfTheBridge: without a key it publishes nothing, whatever the objects and approvals
// say.
func TestThiefOfTheBridge(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	bridge(t, c, func(r *sites.Reconciler) { r.Signers, r.Approval = nil, sites.Unasked }, "metal-a")
	apply(t, c, "metal-a", siteObject("metal-a", registryOf(t), ""))
	says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False NobodySigns")
	if !strings.Contains(says, "caisson publish --from-cluster --namespace metal-a --plan act:sha256:") {
		t.Errorf("it says %q", says)
	}
}

func objectOf(kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(object.GVK(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}
