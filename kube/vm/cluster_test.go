// SPDX-License-Identifier: Apache-2.0

// Package vm boots nodes that are Nodes of a cluster, as virtual machines: its tests give
// examples/kubernetes to the machines of caisson's own test/vm, and a real API server to
// their kubelets. It has no code but tests, and nobody imports it.
//
// They take minutes each:
//
//	make test-kube-long
package vm

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/caisson-os/caisson/kube/test/kubetest"
)

// guestAPI is where a machine finds the API server.
const guestAPI = "10.0.2.103"

// cluster is an API server that machines reach, with the controllers that their kubelets and
// pods need. There is no scheduler: the test says where pods go.
type cluster struct {
	*testing.T
	*kubetest.Cluster
	api       kubernetes.Interface
	authority *authority
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, authority: newAuthority(t)}
	dir := t.TempDir()
	c.authority.serves(dir, "127.0.0.1", guestAPI)
	c.Cluster = kubetest.Start(t, func(s *envtest.APIServer) {
		s.CertDir, s.CA = dir, c.authority.pem
		s.Configure().Set("enable-bootstrap-token-auth", "true")
	})
	// The API server knows users by envtest's authority, and reads the file again when it changes.
	f, err := os.OpenFile(filepath.Join(dir, "client-cert-auth-ca.crt"), os.O_APPEND|os.O_WRONLY, 0)
	c.must(err)
	_, err = f.Write(c.authority.pem)
	c.must(err)
	c.must(f.Close())
	c.api, err = kubernetes.NewForConfig(c.Env.Config)
	c.must(err)
	c.Manager(t, "--controllers", "certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,replicaset-controller,daemonset-controller,disruption-controller,node-lifecycle-controller",
		"--cluster-signing-cert-file", filepath.Join(dir, "authority.crt"), "--cluster-signing-key-file", filepath.Join(dir, "authority.key"))
	c.apply(bootstrap)
	return c
}

// bootstrap is what lets a machine with the token of examples/kubernetes ask for the
// certificate of a kubelet, and gives it to it.
const bootstrap = `
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-07401b, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: 07401b, token-secret: f395accd246ae52d, usage-bootstrap-authentication: "true"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kubelets-ask}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kubelets-are-answered}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers"}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"}
`

func (c *cluster) apply(objects string) {
	c.Helper()
	if out, err := c.Kubectl(c.T, objects, "apply", "--server-side", "-f", "-"); err != nil {
		c.Fatalf("%v\n%s", err, out)
	}
}

// limit is how long a step may take on an emulated processor of a busy host.
const limit = 30 * time.Minute

// until waits for what is to be seen.
func (c *cluster) until(what string, so func() bool) {
	c.Helper()
	for end := time.Now().Add(limit); !so(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			out, err := c.Kubectl(c.T, "", "get", "nodes,pods,events,csr", "--all-namespaces", "-o", "wide")
			c.Fatalf("%s: not within %s\n%s%v", what, limit, out, err)
		}
	}
}

// ready waits until a Node is, as its kubelet said after a moment.
func (c *cluster) ready(name string, after time.Time) (n *corev1.Node) {
	c.Helper()
	c.until("Node "+name+" is ready", func() (so bool) {
		var err error
		if n, err = c.api.CoreV1().Nodes().Get(c.Context(), name, metav1.GetOptions{}); err != nil {
			return false
		}
		for _, cond := range n.Status.Conditions {
			so = so || cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue && cond.LastHeartbeatTime.After(after)
		}
		return so
	})
	return n
}

// placed waits until a pod is as wanted. It is the scheduler.
func (c *cluster) placed(namespace, node, app string, so func(corev1.Pod) bool) (found corev1.Pod) {
	c.Helper()
	pods := c.api.CoreV1().Pods(namespace)
	c.until("a pod of "+app+" on "+node, func() bool {
		list, err := pods.List(c.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return false
		}
		for _, p := range list.Items {
			if p.Spec.NodeName == "" {
				c.must(pods.Bind(c.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{}))
			} else if p.DeletionTimestamp == nil && so(p) {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// runs is a pod that does.
func runs(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func (c *cluster) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}
