// SPDX-License-Identifier: Apache-2.0

// Package vm boots real virtual machines for the tests of the third tier and for
// the demo: PXE or a kernel and initrd by hand, a serial console to wait on,
// commands by SSH, and a power cord to pull.
//
// A machine never reaches anything but the servers on 127.0.0.1 that it is given
// as forwards: its network is QEMU's user network with restrict=on. There is no
// KVM: what the machines do takes several times as long as on metal, and says
// nothing about speed.
//
// It needs qemu-system-x86_64, its network boot ROMs, busybox (for one "nc" a
// connection) and, for disks that forget, qemu-img. What it boots was built by the
// programs, as users run them; it imports packages of the module only to play the
// attacker, to make an initrd by hand and to decode a status. The tests and the demo
// import it.
//
// The tests run with
//
//	make test-vm      # 10 minutes
//	make test-long    # the rest, hours
package vm
