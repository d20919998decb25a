// SPDX-License-Identifier: Apache-2.0

package sites

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/caisson-os/caisson/fleet/published"
)

// TestAuthorIsAClaim: the author of an approval that nobody signed is shown as unproven, since an
// object may name any.
func TestAuthorIsAClaim(t *testing.T) {
	a := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"plan": "sha256:x", "author": "eve", "reason": "new motd"}}}
	w, err := wordOf(a, published.Policy{})
	if err != nil || w.Author != "eve (unproven)" || w.Reason != "new motd" {
		t.Errorf("%+v, %v", w, err)
	}
}
