// SPDX-License-Identifier: Apache-2.0

// Package kernel does what the loader alone asks of kernels: it loads modules into the one that
// runs, has a watchdog start the machine over when the loader hangs, and starts the layer's own
// kernel by kexec, on arm64 at a place in memory that it decides itself.
//
// The service may do none of that: its unit denies the calls. Only bootagent/boot/initramfs
// imports it.
package kernel
