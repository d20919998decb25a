// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"strings"
	"testing"
)

// TestProxyWithPassword: site.cpio is given to everybody, so no password may be in it.
func TestProxyWithPassword(t *testing.T) {
	for proxy, good := range map[string]bool{"http://proxy:3128": true, "http://user:secret@proxy:3128": false, "http://user@proxy:3128": false, "proxy": false} {
		err := checkProxy(proxy)
		if (err == nil) != good {
			t.Errorf("%s: %v", proxy, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is printed: %v", err)
		}
	}
}
