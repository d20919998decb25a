// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongRehearseReboot rehearses a card's MTU on trixie without a disk, which needs a start by
// firmware, or by kexec with the same arguments. All comes back.
func TestLongRehearseReboot(t *testing.T) {
	require.Long(t)
	f := rehearsed(t)
	f.edit(t, "machine:\n", "machine:\n  network: {interfaces: [{mac: \"52:54:00:00:00:0b\", dhcp: ipv4, mtu: 1400}]}\n")
	f.rehearse(t, "reboot", "--check", "ip -4 address show eth0 | grep -z 'mtu 1400.*10.0.2.15/24'")
}

// TestLongRehearseOldKexec rehearses another kernel command line on bookworm with a disk: the kernel is started by
// kexec there and back. All comes back.
func TestLongRehearseOldKexec(t *testing.T) {
	require.Long(t)
	f := rehearsed(t, "suite: trixie", "suite: bookworm", "abi <abi/4.0>", "abi <abi/3.0>")
	f.edit(t, "transparent_hugepage=never", "transparent_hugepage=always")
	f.rehearse(t, "kexec", "--disk", "--check", "grep -q transparent_hugepage=always /proc/cmdline")
}

// TestLongRehearseInMemory rehearses a package more without a disk: a soft-reboot there and one back,
// with both layers in memory. All comes back.
func TestLongRehearseInMemory(t *testing.T) {
	require.Long(t)
	f := rehearsed(t)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.rehearse(t, "soft-reboot", "--memory", "3G", "--check", "command -v bc")
}

// TestLongRehearseKexec rehearses another kernel command line on trixie with a disk, by kexec there and back.
// All comes back.
func TestLongRehearseKexec(t *testing.T) {
	require.Long(t)
	f := rehearsed(t)
	f.edit(t, "transparent_hugepage=never", "transparent_hugepage=always")
	f.rehearse(t, "kexec", "--disk", "--check", "grep -q transparent_hugepage=always /proc/cmdline")
}

// TestLongRehearseOldReboot rehearses a card's MTU on bookworm with a disk, which needs a start by firmware. All comes back.
func TestLongRehearseOldReboot(t *testing.T) {
	require.Long(t)
	f := rehearsed(t, "suite: trixie", "suite: bookworm", "abi <abi/4.0>", "abi <abi/3.0>")
	f.edit(t, "machine:\n", "machine:\n  network: {interfaces: [{mac: \"52:54:00:00:00:0b\", dhcp: ipv4, mtu: 1400}]}\n")
	f.rehearse(t, "reboot", "--disk", "--check", "ip -4 address show eth0 | grep -z 'mtu 1400.*10.0.2.15/24'")
}
