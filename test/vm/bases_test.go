// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// ubuntuKeyring is what Ubuntu's archive is signed with, of its package ubuntu-keyring.
const ubuntuKeyring = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"

// TestLongUbuntu is the quickstart's site on Ubuntu 24.04, with Ubuntu's kernel.
func TestLongUbuntu(t *testing.T) {
	require.Long(t)
	if _, err := os.Stat(ubuntuKeyring); err != nil {
		require.Missing(t, "ubuntu", "no "+ubuntuKeyring)
	}
	f := fleet(t, "debian: {suite: trixie, components: [main]}",
		`debian: {suite: noble, components: [main, universe], mirror: "http://archive.ubuntu.com/ubuntu", security: "http://security.ubuntu.com/ubuntu", keyring: `+ubuntuKeyring+"}",
		"linux-image-cloud-amd64", "linux-image-virtual")
	s := f.login(t, f.boot(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"}))
	if got := run(t, s, "grep PRETTY_NAME /etc/os-release; uname -r; systemctl --version | head -1"); !strings.Contains(got, "Ubuntu 24.04") {
		t.Errorf("it is\n%s", got)
	} else {
		t.Logf("%s", got)
	}
	look(t, s, Quickstart("beta", "1")...)
}
