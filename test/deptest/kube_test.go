// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"strings"
	"testing"
)

// TestNothingKnowsKubernetes: the module kube goes through doors of caisson, see its own
// rules; nothing of caisson knows that there is one, and go.mod names nothing of it.
func TestNothingKnowsKubernetes(t *testing.T) {
	for _, p := range List(t, "./...") {
		for _, dep := range p.Deps {
			for _, banned := range []string{"k8s.io/", "sigs.k8s.io/", Module + "/kube"} {
				if strings.HasPrefix(dep, banned) {
					t.Errorf("%s depends on %s: a fleet without a cluster links nothing of one", p.ImportPath, dep)
				}
			}
		}
	}
	out, err := Go("list", "-m", "-f", "{{.Path}}", "all")
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(out) {
		if path == "k8s.io/client-go" || path == "k8s.io/api" {
			t.Errorf("go.mod leads to %s", path)
		}
	}
}
