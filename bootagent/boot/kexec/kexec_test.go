// SPDX-License-Identifier: Apache-2.0

package kexec

import (
	"strings"
	"testing"
)

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		name, running, loader, want string
		line                        string
		differs                     bool
	}{
		{"as it is", "BOOTIF=01-52 initrd=initrd quiet", "quiet", "quiet", "BOOTIF=01-52 quiet " + Marker, false},
		{"node wants more", "quiet", "quiet", "quiet isolcpus=2", "quiet isolcpus=2 " + Marker, true},
		{"node wants less", "quiet ro", "quiet", "", "ro " + Marker, true},
		{"after kexec", "BOOTIF=01-52 isolcpus=2 " + Marker, "quiet", "isolcpus=2", "BOOTIF=01-52 isolcpus=2 " + Marker, false},
		{"foreign words stay", "console=ttyS0 quiet", "quiet", "quiet", "console=ttyS0 quiet " + Marker, false},
		{"order of the author", "b a", "", "b a", "b a " + Marker, false},
	} {
		line, differs := Arguments(strings.Fields(test.running), strings.Fields(test.loader), strings.Fields(test.want))
		if got := strings.Join(line, " "); got != test.line || differs != test.differs {
			t.Errorf("%s: %q, %v; want %q, %v", test.name, got, differs, test.line, test.differs)
		}
		if again, differs := Arguments(line, strings.Fields(test.loader), strings.Fields(test.want)); differs {
			t.Errorf("%s: after a kexec it would do another one: %q", test.name, again)
		}
	}
}
