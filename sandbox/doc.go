// SPDX-License-Identifier: Apache-2.0

// Package sandbox boots one node of a site in a virtual machine that reaches nothing,
// before anything of the site is published.
//
//	box, err := sandbox.Open(ctx, site, "node1", sandbox.Options{…}) // build, sign, publish, boot files
//	defer box.Close()
//	err = box.Start(ctx)            // QEMU, from the kernel, the initrd and the site.cpio that metal gets, or from a medium
//	err = box.LogIn(ctx)            // it is up, or says why not
//	verdict, err := box.Settle(ctx) // what the node's agent says: health, gates
//	check, err := box.Check(ctx, "systemctl is-active nginx")
//
// With [Options].Kept the machine runs what a registry keeps for the node in place of what the
// site says; Offer and GoBack then publish something else for it while it runs.
//
// The layer is the one that a build makes, the overlay byte for byte the one that a publish
// makes. What differs is said here, in one place: the keys, which are made for this one
// boot; the registry, which is in this process on the loopback; the first console, which is
// the serial one; and a key with which root logs in, given to systemd as a credential and so
// part of neither. Nobody is told: the machine's network has no way out, and the loader is
// not given the fleet's service.
//
// It holds no keys of the site, and it is not a test of the hardware: drivers, firmware and
// cards are QEMU's. cmd/caisson, sandbox/culprit and sandbox/rehearsal import it; how a machine
// is run is internal/machine's.
package sandbox
