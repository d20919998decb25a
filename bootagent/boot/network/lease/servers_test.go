// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// rdnss returns the kernel's message for an advertisement with two resolvers, on interface 7.
func rdnss() []byte {
	data := make([]byte, 16)
	data[0], data[4] = unix.AF_INET6, 7 // of this machine's byte order: tests run on little endian
	data = append(data, 25, 5, 0, 0, 0, 0, 0, 60)
	for _, a := range []string{"2001:db8::53", "ff02::1"} {
		b := netip.MustParseAddr(a).As16()
		data = append(data, b[:]...)
	}
	return data
}

func TestParseServers(t *testing.T) {
	if index, found := parseServers(rdnss()); index != 7 || fmt.Sprint(found.dns) != "[2001:db8::53]" {
		t.Errorf("%d %v", index, found)
	}
}

// FuzzServers holds that no advertisement makes the loader panic, or gives a resolver that
// is none.
func FuzzServers(f *testing.F) {
	f.Add(rdnss())
	short := rdnss()
	short[17] = 0 // the length that the option gives of itself, in eights
	f.Add(short)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, found := parseServers(data)
		for _, a := range found.dns {
			if !a.IsGlobalUnicast() {
				t.Errorf("took %s", a)
			}
		}
	})
}
