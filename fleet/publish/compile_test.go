// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// TestServicesFitTheirLayer: no node is sent a service whose user or package its layer
// has not; nodes without the service do not matter.
func TestServicesFitTheirLayer(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
layer: {base: {debian: {suite: trixie}}}
nodes: [{name: mon}, {name: web}]
---
apiVersion: caisson.dev/v1alpha1
kind: NodeSet
metadata: {name: mon}
spec: {match: {hosts: [mon]}}
---
apiVersion: caisson.dev/v1alpha1
kind: NodeService
metadata: {name: prometheus}
spec: {nodes: [mon], user: USER, package: prometheus, git: {url: "file:///x", branch: main}, directories: [{from: a, to: /etc/a}]}
`
	has := []spec.InstalledPackage{{Name: "prometheus", Arch: "amd64"}}
	account := func(state string) []spec.Account { return []spec.Account{{Name: "prometheus", State: state}} }
	for what, c := range map[string]struct {
		user, node string
		layer      spec.Layer
		want       string
	}{
		"as it should be": {"prometheus", "mon", spec.Layer{Accounts: account("system"), Packages: has}, ""},
		"a person":        {"prometheus", "mon", spec.Layer{Accounts: account("active"), Packages: has}, ""},
		"Debian's own":    {"www-data", "mon", spec.Layer{Packages: has}, ""},
		"no user":         {"prometheus", "mon", spec.Layer{Packages: has}, "has no user prometheus"},
		"a user that was": {"prometheus", "mon", spec.Layer{Accounts: account("purged"), Packages: has}, "has no user prometheus"},
		"a group":         {"prometheus", "mon", spec.Layer{Accounts: account("system-group"), Packages: has}, "has no user prometheus"},
		"no package":      {"root", "mon", spec.Layer{Packages: []spec.InstalledPackage{{Name: "prometheus-x"}}}, "has no package prometheus"},
		"another node":    {"prometheus", "web", spec.Layer{}, ""},
	} {
		s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(strings.Replace(text, "USER", c.user, 1))}}, "site.yaml")
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		c.layer.Features = spec.Features()
		err := fits(s, c.node, release.Layer{Described: trust.Described{Layer: c.layer}, Digest: "sha256:x"})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}
