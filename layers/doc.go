// SPDX-License-Identifier: Apache-2.0

// Package layers keeps a system layer's images on a node and stacks them.
//
// [Store] holds verified blobs under their digest; [Stack] mounts
// images read-only over loop devices and puts an overlayfs on top, see
// loop(4), mount(2) and the kernel's overlayfs document. The package knows
// nothing of registries, signatures or the documents in spec: it is given
// digests and paths that somebody else has verified the meaning of.
//
// It runs as root on Linux. Trees become images in layers/image, which the
// agent never links.
package layers
