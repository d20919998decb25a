// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/kube/drain"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongNode has a machine without a disk join a cluster, run a pod, and go to a layer that
// has one package more and back by a pin: each time it asks for its slot, is drained by the
// eviction API, soft-reboots, passes its checks, and is the same Node again, uncordoned.
func TestLongNode(t *testing.T) {
	require.Long(t)
	c := newCluster(t)
	f := newFleet(t, c)
	began := time.Now()
	m := f.boots("node-1", "52:54:00:00:21:01")
	node := c.ready("node-1", began)
	t.Logf("%s: a Node that is ready, %s after the machine was started", node.Status.NodeInfo.KubeletVersion, time.Since(began).Round(time.Second))
	s := f.login(m)
	first := f.status(s)
	if first.Health != "ok" || first.Sync != "current" {
		t.Fatalf("first boot: %+v", first)
	}
	boot := f.run(s, "cat /proc/sys/kernel/random/boot_id")
	c.apply(web)
	before := c.placed("default", "node-1", "web", runs)
	metrics := f.drains()

	f.edit("site.yaml", "      - name: containerd\n", "      - name: containerd\n      - name: bc\n")
	f.build()
	f.publish()
	s = f.drained(m, s, node, before)
	if second := f.status(s); second.Layer == first.Layer || second.Health != "ok" || second.Sync != "current" {
		t.Errorf("in the new layer: %+v", second)
	}
	if got := f.run(s, "echo 6*7 | bc; cat /proc/sys/kernel/random/boot_id; systemctl --failed --plain --no-legend"); got != "42\n"+boot {
		t.Errorf("in the new layer: %q", got)
	}
	before = c.placed("default", "node-1", "web", runs)

	f.caisson("pin", f.To(), "--site", "site.yaml", "--node", "node-1", "--layer", f.layer, "--reason", "the new one is tried elsewhere", "--key", "keys/operator.key")
	s = f.drained(m, s, node, before)
	if back := f.status(s); back.Layer != first.Layer || back.Health != "ok" || back.Sync != "current" {
		t.Errorf("pinned: %+v", back)
	}
	if got := f.run(s, "! bc --version 2>/dev/null; cat /proc/sys/kernel/random/boot_id"); got != boot {
		t.Errorf("pinned: %q", got)
	}
	c.placed("default", "node-1", "web", runs)
	if got := get(t, "http://"+metrics+"/metrics"); !strings.Contains(got, "caisson_kube_drains_total{result=\"ok\"} 2\n") || strings.Contains(got, "caisson_kube_drains_total{result=\"failed\"}") {
		t.Errorf("metrics:\n%s", got)
	}
}

// web is one pod that is made again when it is evicted, and a budget that lets that be.
const web = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers: [{name: web, image: "` + busybox + `", command: [sleep, infinity]}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
`

// drained has a node learn what was published, and follows it until it is well again: drained
// before its processes end, and then the same Node, ready and uncordoned.
func (f *fleet) drained(m *machine.Machine, s *machine.Session, node *corev1.Node, pod corev1.Pod) *machine.Session {
	f.Helper()
	began, from := time.Now(), m.Console.Len()
	f.run(s, "sudo caisson-agent sync || [ $? -eq 3 ]")
	c := f.cluster
	c.until("the Node is cordoned", func() bool {
		n := c.node(node.Name)
		return n.Spec.Unschedulable && strings.Contains(n.Annotations[drain.Annotation], `"workers"`)
	})
	ctx, cancel := context.WithTimeout(f.Context(), limit)
	defer cancel()
	marker, err := m.Console.Wait(ctx, from, "Soft-rebooting", "caisson: entering the layer")
	f.must(err)
	if marker != "Soft-rebooting" {
		f.Fatal("the machine was started over")
	}
	left := time.Now()
	if _, err := c.api.CoreV1().Pods("default").Get(f.Context(), pod.Name, metav1.GetOptions{}); err == nil || !c.node(node.Name).Spec.Unschedulable {
		f.Errorf("its processes ended before it was drained: pod %s, %v", pod.Name, err)
	}
	s = f.login(m)
	again := c.ready(node.Name, left)
	if again.UID != node.UID {
		f.Errorf("it is another Node: %s, before %s", again.UID, node.UID)
	}
	c.until("the Node is uncordoned", func() bool {
		n := c.node(node.Name)
		return !n.Spec.Unschedulable && n.Annotations[drain.Annotation] == ""
	})
	f.Logf("drained, in the other layer and uncordoned after %s, of which %s until its processes ended", time.Since(began).Round(time.Second), left.Sub(began).Round(time.Second))
	return s
}

// node is a Node as it stands.
func (c *cluster) node(name string) *corev1.Node {
	c.Helper()
	n, err := c.api.CoreV1().Nodes().Get(c.Context(), name, metav1.GetOptions{})
	c.must(err)
	return n
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
