// SPDX-License-Identifier: Apache-2.0

// Package initramfs is the agent as /init: from a kernel with nothing mounted to
// a stacked, configured root whose PID 1 is systemd.
//
// The stages are one visible list, see [Boot]: file systems, modules,
// watchdog, identity, state disk, network, overlay, layer, kexec, stack, handover,
// AppArmor, switch_root. What each decides goes into the boot record that the service
// reads. It says what it does on the console, and on a refusal why.
//
// A stage either succeeds, falls back to the last good overlay, or says what is
// wrong and tries again: a node that cannot prove what it should be runs nothing.
// Whatever waits has a deadline, see limits.go, and a loader that makes no progress
// starts the machine over.
// The loader never opens a shell. It follows bootup(7) and switch_root(8); only
// cmd/caisson-agent imports it.
package initramfs
