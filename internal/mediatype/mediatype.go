// SPDX-License-Identifier: Apache-2.0

// Package mediatype spells the media types of the files that a layer is made of: the
// builder makes them, artifacts carry them, and nodes mount and start them. Types of
// documents are in package oci.
//
// It imports nothing; everything may import it.
package mediatype

// Media types of files.
const (
	Kernel   = "application/vnd.caisson.kernel.v1"
	Initrd   = "application/vnd.caisson.initrd.v1"
	UEFI     = "application/vnd.caisson.uefi.v1"
	UKI      = "application/vnd.caisson.uki.v1"
	ESP      = "application/vnd.caisson.esp.v1"
	Squashfs = "application/vnd.caisson.image.v1.squashfs"
	Chunks   = "application/vnd.caisson.chunks.v1"
)
