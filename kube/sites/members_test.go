// SPDX-License-Identifier: Apache-2.0

package sites_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caisson-os/caisson/kube/sites"
	"github.com/caisson-os/caisson/kube/test/kubetest"
	"github.com/caisson-os/caisson/spec/site/cluster"
)

const (
	uuid1 = "6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a11"
	uuid2 = "6f1c2a4e-58a1-4c3b-9b61-0d5f3c2b7a22"
)

// says has a kubelet say its UUID.
func says(t *testing.T, kubelet client.Client, node, uuid string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := kubelet.Status().Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"status": {"nodeInfo": {"systemUUID": "`+uuid+`"}}}`))); err != nil {
		t.Fatal(err)
	}
}

// TestNodesAreTheInventory: nodes are those of the cluster, and what a kubelet says of itself
// gets it nothing: neither labels that it gives itself, nor another machine's UUID.
func TestNodesAreTheInventory(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	fleet := registryOf(t)
	for _, name := range []string{"n1", "n2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-restriction.kubernetes.io/fleet": "metal-a"}}}
		if err := c.Admin.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}); err != nil {
		t.Fatal(err)
	}
	kubelet := kubetest.Client(t, c.User(t, "system:node:n1", "system:nodes"))
	says(t, kubelet, "n1", uuid1)
	bridge(t, c, func(r *sites.Reconciler) { r.Approval = sites.Unasked }, "metal-a")
	site := func(swappiness string) string {
		return head + "kind: Site\nmetadata: {name: metal-a}\nregistry: " + fleet + "\n" +
			"inventory: [{cluster: {labels: [node-restriction.kubernetes.io/fleet=metal-a]}}]\n" +
			"nodes: [{name: n2, match: {uuids: [" + uuid2 + "]}}]\n" +
			"conf: {sysctl: {vm.swappiness: \"" + swappiness + "\"}, overrides: {divingbell_sysctl: {labels: [{label: {key: compute_type, values: [gpu]}, conf: {sysctl: {vm.swappiness: \"99\"}}}]}}}\n"
	}
	apply(t, c, "metal-a", site("10"))
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "True Published")
	first := overlays(t, fleet)
	if len(first) != 2 || first["n1"] == "" || first["n2"] == "" {
		t.Fatalf("published are %v", first)
	}

	// Labels: the one that counts it cannot give itself, and the one that it can counts for nothing.
	label := func(who client.Client, node, key, value string) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return who.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"`+key+`": "`+value+`"}}}`)))
	}
	if err := label(kubelet, "n1", "node-restriction.kubernetes.io/role", "db"); err == nil || !strings.Contains(err.Error(), "is not allowed to modify labels") {
		t.Errorf("a kubelet gives itself a label below node-restriction.kubernetes.io: %v", err)
	}
	if err := label(kubelet, "n2", "compute_type", "gpu"); err == nil {
		t.Error("a kubelet labels another's Node")
	}
	if err := label(kubelet, "n1", "compute_type", "gpu"); err != nil {
		t.Fatal(err)
	}
	apply(t, c, "metal-a", head+"kind: NodeSet\nmetadata: {name: look}\nspec: {}\n") // the next look
	condition(t, c.Admin, "NodeSet", "metal-a", "look", "Valid", "True Valid")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True UpToDate")
	if now := overlays(t, fleet); now["n1"] != first["n1"] {
		t.Error("a label that a kubelet gave itself chose its overlay")
	}

	// Another machine's UUID: the Node that says it is left out, and the rest is published.
	says(t, kubelet, "n1", uuid2)
	until := func(want string) {
		t.Helper()
		eventually(t, func() error {
			says := condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Planned", "True UpToDate")
			if strings.Contains(says, "left out") != (want != "") || !strings.Contains(says, want) {
				return fmt.Errorf("the plan says %q", says)
			}
			return nil
		})
	}
	until("left out, see status.problems: n1")
	apply(t, c, "metal-a", site("20"))
	eventually(t, func() error {
		if overlays(t, fleet)["n2"] == first["n2"] {
			return errors.New("n2 is not published")
		}
		return nil
	})
	now := overlays(t, fleet)
	if len(now) != 2 || now["n1"] != first["n1"] {
		t.Errorf("n1 had %s, and has %s of %v", first["n1"], now["n1"], now)
	}
	out, err := c.Kubectl(t, "", "get", "site", "metal-a", "--namespace", "metal-a", "-o", "jsonpath={.status.problems}")
	if err != nil || !strings.Contains(out, "its kubelet says the UUID "+uuid2+", which the site gives to n2") || !strings.Contains(out, ".inventory[0].cluster") {
		t.Errorf("%v\n%s", err, out)
	}

	// It is settled without any change of the objects: Nodes are watched.
	says(t, kubelet, "n1", uuid1)
	until("")
	eventually(t, func() error {
		if overlays(t, fleet)["n1"] == first["n1"] {
			return errors.New("n1 is not published")
		}
		return nil
	})

	// An administrator takes the Node out of the fleet, and it leaves.
	if err := label(c.Admin, "n1", "node-restriction.kubernetes.io/fleet", "other"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if now := overlays(t, fleet); len(now) != 1 {
			return fmt.Errorf("published are %v", now)
		}
		return nil
	})
}

// TestHeartbeatsAreNoChange: a namespace is looked at when a Node changes in what a site may
// read of it, and not when its kubelet is well again.
func TestHeartbeatsAreNoChange(t *testing.T) {
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	if err := c.Admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	looks := make(chan string, 1000)
	bridge(t, c, func(r *sites.Reconciler) { r.Seen = looked(looks) }, "metal-a")
	apply(t, c, "metal-a", head+"kind: Site\nmetadata: {name: metal-a}\nregistry: "+registryOf(t)+"\ninventory: [{cluster: {}}]\n")
	condition(t, c.Admin, cluster.Site, "metal-a", "metal-a", "Published", "False WaitsForApproval")
	beat := func() {
		t.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": %q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if err := c.Admin.Status().Patch(t.Context(), n, client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func() bool { // for longer than changes are gathered
		select {
		case <-looks:
			return false
		case <-time.After(10 * time.Second):
			return true
		}
	}
	eventually(t, func() error {
		if !quiet() {
			return errors.New("it still looks")
		}
		return nil
	})
	beat()
	if !quiet() {
		t.Error("a heartbeat had the namespace looked at")
	}
	says(t, c.Admin, "n1", uuid1)
	if quiet() {
		t.Error("another UUID had nobody look")
	}
}

// looked notes looks at namespaces.
type looked chan string

func (l looked) Looked(namespace string, _ time.Duration, _ error) { l <- namespace }
func (l looked) Site(string, map[string]bool, int64)               {}
