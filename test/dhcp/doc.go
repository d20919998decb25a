// SPDX-License-Identifier: Apache-2.0

// Package dhcp tests the samples in examples/dhcp: each DHCP server is started
// with its own file in a network namespace and asked as firmware asks.
package dhcp
