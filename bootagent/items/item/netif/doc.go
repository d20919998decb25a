// SPDX-License-Identifier: Apache-2.0

// Package netif finds the network interfaces that a site means: by name, address, driver or place
// on the PCI bus, and asks the kernel about them.
//
// All kinds that set something of interfaces mean the same ones by the same words, and so does
// the loader. It is asked at each look, so that one that comes later is found then. Only
// bootagent/items/nics, bootagent/items/tunable, bootagent/boot/identity and
// bootagent/boot/network import it.
package netif
