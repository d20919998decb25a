// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"testing"
	"testing/fstest"

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
