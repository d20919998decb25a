// SPDX-License-Identifier: Apache-2.0

package module

import (
	"testing"
)

func TestSysctlSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"net.ipv4.ip_forward":               "net/ipv4/ip_forward",
		"net/ipv4/ip_forward":               "net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/100.forwarding": "net/ipv4/conf/eth0.100/forwarding",
		"net/ipv4/conf/eth0.100/forwarding": "net/ipv4/conf/eth0.100/forwarding",
		"kernel.domainname":                 "kernel/domainname",
	} {
		if got := sysctlPath(in); got != want {
			t.Errorf("sysctlPath(%q) = %q; want %q", in, got, want)
		}
		if got := sysctlPath(sysctlDots(sysctlPath(in))); got != want {
			t.Errorf("%q through the dotted spelling = %q; want %q", in, got, want)
		}
	}
}
