// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"strings"
	"testing"
)

// A loader's kernel that panics before /init must start over.
func TestScriptHasPanic(t *testing.T) {
	if s := ipxeScript("http://h", []string{"quiet"}); !strings.Contains(s, " quiet panic=30 || goto failed") {
		t.Errorf("boot.ipxe:\n%s", s)
	}
	if s := ipxeScript("", []string{"panic=0"}); strings.Contains(s, "panic=30") {
		t.Errorf("the site's own word does not count:\n%s", s)
	}
}
