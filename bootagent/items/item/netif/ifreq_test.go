// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"net"
	"os"
	"strings"
	"testing"
)

// TestPermanent: cards of this machine that have the address that they came with say so.
func TestPermanent(t *testing.T) {
	if got := Permanent("no-such-card"); got != "" {
		t.Errorf("a card that is not there: %q", got)
	}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		dir := "/sys/class/net/" + i.Name
		_, err := os.Stat(dir + "/device")
		kind, _ := os.ReadFile(dir + "/addr_assign_type") // without one it is not NET_ADDR_PERM
		if err != nil || strings.TrimSpace(string(kind)) != "0" {
			continue
		}
		if got := Permanent(i.Name); got != i.HardwareAddr.String() {
			t.Errorf("%s: %q, want %q", i.Name, got, i.HardwareAddr)
		}
	}
}
