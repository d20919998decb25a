// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"testing"
)

func TestBroadcast(t *testing.T) {
	for prefix, want := range map[string]string{"10.0.2.15/24": "10.0.2.255", "10.0.2.15/20": "10.0.15.255", "10.0.2.15/32": "10.0.2.15"} {
		if got := broadcast(netip.MustParsePrefix(prefix)).String(); got != want {
			t.Errorf("%s: %s, want %s", prefix, got, want)
		}
	}
}
