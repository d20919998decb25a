// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongAttach has the chart attach, on a kubelet of its own, look at a host that Divingbell
// configured, wait while a pod of that is there, take it over, and leave it configured when
// cluster and registry are gone and the host starts again.
func TestLongAttach(t *testing.T) {
	require.Long(t)
	c := newCluster(t)
	f, _ := prepared(t, c)
	f.image("attach", "bin/busybox", "usr/local/bin/caisson-agent")
	f.hostsAreSite()
	o := f.host("superhost")
	o.Forwards = map[string]string{guestRegistry: strings.Split(f.Registry, "/")[0], guestAPI + ":6443": f.api()}
	began := time.Now()
	m, err := f.Start(t.Context(), o)
	f.watched(m, err)
	s := f.login(m)
	c.ready("superhost", began)
	t.Logf("a Node that is ready, %s after the machine was started", time.Since(began).Round(time.Second))
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: caisson-attach, labels: {pod-security.kubernetes.io/enforce: privileged}}\n")
	c.apply(divingbell)
	c.placed("default", "superhost", "divingbell", runs)

	c.apply(f.chart("look"))
	c.placed("caisson-attach", "superhost", "caisson-attach-a", runs)
	if got := f.run(s, "cat /proc/sys/net/core/somaxconn; systemctl is-active caisson-agent || true; sudo sh -c 'cat /var/log/pods/caisson-attach_*/attach/*.log' | grep -o 'enrolled as node superhost of fleet metal-a'"); got != "1024\ninactive\nenrolled as node superhost of fleet metal-a" {
		t.Errorf("looked at: %q", got)
	}

	c.apply(f.chart("apply"))
	c.placed("caisson-attach", "superhost", "caisson-attach-a", func(p corev1.Pod) bool {
		return len(p.Status.InitContainerStatuses) > 0 && p.Status.InitContainerStatuses[0].RestartCount > 0 && p.Spec.InitContainers[0].Env[2].Value == "apply"
	})
	if got := f.run(s, "ls /etc/sysctl.d | grep divingbell; systemctl is-active caisson-agent || true"); got != somaxconn+"\ninactive" {
		t.Errorf("while Divingbell is there: %q", got)
	}
	// The controllers of tests collect no garbage: the pod is deleted, too.
	for _, what := range [][]string{{"delete", "-f", "-"}, {"delete", "pods", "--namespace=default", "--selector=app=divingbell"}} {
		if out, err := c.Kubectl(t, divingbell, what...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c.placed("caisson-attach", "superhost", "caisson-attach-a", runs)
	if got := f.run(s, "cat /proc/sys/net/core/somaxconn; systemctl is-active caisson-agent; ls /etc/sysctl.d | grep divingbell || true"); got != "1024\nactive" {
		t.Errorf("attached: %q", got)
	}
	// What stays is nobody, in namespaces of its own, with no capability.
	if got := f.run(s, `p=$(pgrep -u 65534 sleep) && grep CapEff /proc/$p/status | tr -s '\t' ' ' && for ns in pid mnt ipc; do sudo test $(sudo readlink /proc/$p/ns/$ns) != $(sudo readlink /proc/1/ns/$ns) && echo $ns; done`); got != "CapEff: 0000000000000000\npid\nmnt\nipc" {
		t.Errorf("what stays: %q", got)
	}
	if out, err := c.Kubectl(t, "", "delete", "namespace", "caisson-attach", "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	run := f.run(s, "sync; cat /proc/sys/kernel/random/boot_id")
	m.PowerCut()
	o.Forwards = nil // no cluster, no registry
	m, err = f.Start(t.Context(), o)
	f.watched(m, err)
	s = f.login(m)
	c.until("the host is configured without cluster and registry", func() bool {
		return f.run(s, "systemctl is-active caisson-agent || true; cat /proc/sys/net/core/somaxconn") == "active\n1024"
	})
	if got := f.run(s, "cat /proc/sys/kernel/random/boot_id; stat -c '%a %U:%G' /srv/report.txt"); strings.HasPrefix(got, run) || !strings.HasSuffix(got, "640 root:adm") {
		t.Errorf("after a boot: %q, before %s", got, run)
	}
}

// divingbell is a pod as Divingbell's are: it runs /tmp/sysctl.sh.
const divingbell = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: divingbell, namespace: default}
spec:
  selector: {matchLabels: {app: divingbell}}
  template:
    metadata: {labels: {app: divingbell}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers: [{name: sysctl, image: "` + busybox + `", command: [sh, -c, "mkdir -p /tmp; echo 'while :; do sleep 60; done' >/tmp/sysctl.sh; exec sh /tmp/sysctl.sh"]}]
`

// hostsAreSite publishes examples/migration, whose node superhost is.
func (f *fleet) hostsAreSite() {
	f.Helper()
	f.must(os.CopyFS(filepath.Join(f.Dir, "hosts"), os.DirFS("../../examples/migration")))
	f.must(os.CopyFS(filepath.Join(f.Dir, "hosts/keys"), os.DirFS(filepath.Join(f.Dir, "keys"))))
	f.caisson("publish", "hosts/site.yaml", "--to", strings.Split(f.Registry, "/")[0]+"/hosts", "--key", "keys/operator.key", "--new-fleet")
}

// chart renders kube/deploy/attach for one rack that has all Nodes.
func (f *fleet) chart(phase string) string {
	f.Helper()
	chart, err := loader.Load("../deploy/attach")
	f.must(err)
	values, err := chartutil.ToRenderValues(chart, map[string]any{"attach": map[string]any{"image": guestRegistry + "/images/attach:1", "from": guestRegistry + "/hosts", "fleet": "metal-a", "rackLabel": "",
		"keys": map[string]any{"operator.pub": f.read("keys/operator.pub")}, "enroll": []any{"--plain-http"}, "racks": map[string]any{"a": phase}}},
		chartutil.ReleaseOptions{Name: "attach", Namespace: "caisson-attach"}, nil)
	f.must(err)
	out, err := engine.Render(chart, values)
	f.must(err)
	var all strings.Builder
	for _, text := range out {
		all.WriteString("---\n" + text + "\n")
	}
	return all.String()
}
