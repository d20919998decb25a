// SPDX-License-Identifier: Apache-2.0

// Package network makes the interfaces by which a loader reaches the registry, and tells by
// which of them it is: cards, bonds and VLANs with addresses that are given, or asked for by
// DHCPv4, DHCPv6 and router advertisements. Which they are is decided in package table.
//
// Each interface by which something may be reached is a way. All are brought up at once, and
// for as long as the loader runs: one whose switch takes minutes, or whose cable comes late,
// is a way then. What is waited for is told by the kernel (a carrier, an address that is
// settled, an advertisement); LACP alone is looked for each second. DHCP is asked again
// until it answers, and once more after half of a lease.
//
// The new root carries on what is here: the client identifier is the hardware address, as
// systemd-networkd's ClientIdentifier=mac sends it, and by DHCPv6 DUID-LL. The package
// follows RFC 2131, 4361, 4861 and 8415, and configures through rtnetlink(7).
package network
