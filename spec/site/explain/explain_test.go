// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec/site"
)

const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: a, labels: {k: v}}]
conf:
  sysctl: {vm/swappiness: 1, kernel.panic: 5}
  ethtool: {eth0: {tso: 'off'}}
  exec: {e: {data: '#!/bin/sh', rerun_policy: never}}
  overrides:
    divingbell_sysctl:
      labels:
      - {label: {key: k, values: [v]}, conf: {sysctl: {vm.swappiness: 2}}}
`

// Each value says where it was written, in the spelling of its author's tools;
// what nobody wrote is named as a default.
func TestNode(t *testing.T) {
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	e, err := s.Explain("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"sysctl":  map[string]any{"vm.swappiness": "2", "kernel.panic": "5"},
		"ethtool": map[string]any{"eth0": map[string]any{"tcp-segmentation-offload": false}},
		"exec":    map[string]any{"e": map[string]any{"data": "#!/bin/sh", "rerun_policy": "never"}},
	}
	if d := cmp.Diff(want, e.Conf); d != "" {
		t.Errorf("conf (-want +got):\n%s", d)
	}
	if e.Target["sysctl"] != "label:k" || e.Target["exec"] != "default" {
		t.Errorf("targets %v", e.Target)
	}
	over := e.Origins["/conf/sysctl/vm.swappiness"]
	if over.Source != "label:k" || over.Line != 12 || over.Over != "1" {
		t.Errorf("the override comes from %+v", over)
	}
	if base := e.Origins["/conf/sysctl/kernel.panic"]; base.Source != "base" || base.Line != 6 {
		t.Errorf("the base comes from %+v", base)
	}
	if d := cmp.Diff(map[string]any{"/conf/exec/e/timeout": "1800", "/conf/exec/e/blocking_policy": "foreground"}, e.Defaults); d != "" {
		t.Errorf("defaults (-want +got):\n%s", d)
	}
	var b bytes.Buffer
	e.Write(&b)
	for _, line := range []string{"vm.swappiness", "site.yaml:12", "label:k"} {
		if !bytes.Contains(b.Bytes(), []byte(line)) {
			t.Errorf("the tree does not say %q:\n%s", line, b.String())
		}
	}
	if e, err = s.Explain("unknown", map[string]string{"k": "other"}); err != nil || e.Known || e.Target["sysctl"] != "default" {
		t.Errorf("a node that there might be: %+v, %v", e, err)
	}
}

// What an operation of type realtime manages is told with its place, in its author's
// file or that of the template; nodes without it have none.
func TestOperation(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
nodes: [{name: a}, {name: b}]
---
apiVersion: caisson.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: night}
spec: {timeZone: UTC, duration: 4h, opens: [{weekly: sat, at: "22:00"}]}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: one}
spec: {match: {hosts: [a]}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeMaintenance
metadata: {name: m}
spec:
  nodes: [one]
  windows: [night]
  operations:
  - name: r
    type: realtime
    conf:
      sysctl: {vm/page-cluster: 10}
      nics: {eth0: {ring: {rx: 512}}}
  - {name: t, template: {name: sysctl-baseline, version: "1"}, with: {swappiness: "7"}}
`
	s, r := site.ParseAt(time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC), fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Problems)
	}
	e, err := s.Explain("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	managed, _ := e.Operations["m/r"].(map[string]any)
	if d := cmp.Diff(map[string]any{"sysctl": map[string]any{"vm.page-cluster": "10"}, "nics": map[string]any{"eth0": map[string]any{"ring": map[string]any{"rx": "512"}}}}, managed); d != "" {
		t.Errorf("operation (-want +got):\n%s", d)
	}
	if o := e.Origins["/operations/m~1r/sysctl/vm.page-cluster"]; o.Source != "base" || o.File != "site.yaml" || o.Line != 26 {
		t.Errorf("it comes from %+v", o)
	}
	var b bytes.Buffer
	e.Write(&b)
	for _, line := range []string{"operation m/r                                        realtime, in night\n", "    vm.page-cluster: 10                              site.yaml:26\n", "vm.swappiness: 7                                 site.yaml:28 template:sysctl-baseline\n"} {
		if !bytes.Contains(b.Bytes(), []byte(line)) {
			t.Errorf("the tree does not say %q:\n%s", line, b.String())
		}
	}
	if e, err = s.Explain("b", nil); err != nil || e.Operations != nil {
		t.Errorf("a node without it: %+v, %v", e, err)
	}
}
